"""`sereno group …`: list, show and cancel groups of jobs."""

from collections.abc import Iterator
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, chosen_form, counted, show_json, show_list, show_record
from sereno.cli.progress import progress

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.jobs.queries.links import GroupDetail
    from sereno.jobs.queries.rows import JobLine


def _progress(line: Any) -> str:
    return f"{line.total - line.remaining:,} of {line.total:,}"


def _then(line: Any) -> str:
    return "" if line.then_job is None else f"{line.then_job} {line.then_state or ''}".strip()


COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("name", lambda line: line.name, "name"),
    Column("tenant", lambda line: line.tenant, "name"),
    Column("ended", _progress, "number"),
    Column("dead", lambda line: line.dead, "number"),
    Column("on dead", lambda line: line.on_dead),
    Column("then", _then),
    Column("created", lambda line: line.created_at),
)


@click.group()
def group() -> None:
    """List, show and cancel groups of jobs."""


@group.command("list", epilog="Example: sereno group list --tenant r42")
@click.option("--tenant")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--before", type=int, metavar="ID", help="Only groups created before this one: the next page.")
@output_option
@context_options
def list_groups(context: "CommandContext", tenant: str | None, limit: int, before: int | None, form: str) -> None:
    """List groups, newest first."""
    from sereno.jobs.group_store import list_groups as operation  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(operation(limit=limit + 1, before=before, tenant=tenant))
    page = found[:limit]
    following = page[-1].id if len(found) > limit else None
    show_list(form, page, COLUMNS, whole={"items": page, "next": following}, empty="No group matches.")
    if following is not None and chosen_form(form) == "table":
        click.echo(f"There are more: add --before {following}", err=True)


@group.command(epilog="Example: sereno group show 12 --follow")
@click.argument("group_id", type=click.IntRange(min=0), metavar="GROUP")
@click.option("-f", "--follow", is_flag=True, help="Show progress until all its jobs and the next one have ended.")
@click.option(
    "--every", default=0.5, show_default=True, type=click.FloatRange(0.1, 60), help="Seconds between updates."
)
@output_option
@context_options
def show(context: "CommandContext", group_id: int, follow: bool, every: float, form: str) -> None:
    """Show a group: its progress, its jobs by state, the job that follows, and the newest dead jobs."""
    from sereno.jobs.queries.links import group_detail  # noqa: PLC0415 - slow to import; --help needs none

    detail = context.run(group_detail(group_id))
    with progress(f"group {group_id}") as report:
        while follow and not detail.is_over:
            report((detail.group.total - detail.group.remaining) / max(1, detail.group.total), _progress(detail.group))
            sleep(every)
            detail = context.run(group_detail(group_id))
    show_record(form, detail, lambda: _lines(detail))


@group.command(epilog='Example: sereno group cancel 12 --reason "wrong file"')
@click.argument("group_id", type=click.IntRange(min=0), metavar="GROUP")
@click.option("--reason", help="Reason, stored with the jobs.")
@output_option
@context_options
def cancel(context: "CommandContext", group_id: int, reason: str | None, form: str) -> int:
    """Cancel the jobs of a group that have not ended, and the job that follows them."""
    from sereno.jobs.group_operations import cancel_group  # noqa: PLC0415 - slow to import; --help needs none

    changed = context.carry_out(cancel_group(group_id, reason=reason))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(changed, indent=2 if form == "json" else 0)
    elif not changed.done and not changed.stopping:
        click.echo("All jobs of the group have ended: nothing was changed.")
    else:
        click.echo(f"Cancelled: {counted(len(changed.done), 'job')}.")
        if changed.stopping:
            click.echo(f"Stop requested, still running: {counted(len(changed.stopping), 'job')}.")
    return 0 if changed.done or changed.stopping else NOTHING_MATCHED


def _lines(detail: "GroupDetail") -> Iterator[str]:
    found = detail.group
    yield f"{'group':<12}{found.id}" + (f"  {found.name}" if found.name else "")
    if found.tenant is not None:
        yield f"{'tenant':<12}{found.tenant}"
    yield f"{'ended':<12}{_progress(found)}"
    yield f"{'jobs':<12}{', '.join(f'{count} {state}' for state, count in detail.states.items()) or 'none'}"
    yield f"{'on dead':<12}{found.on_dead}"
    yield f"{'created':<12}{found.created_at.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    if detail.then is not None:
        gone = "deleted, or past retention"
        yield f"{'then':<12}{detail.then.id}  {detail.then.task or ''} {detail.then.state or gone}"
    for job in detail.dead:
        yield f"{'dead':<12}{job.id}  {job.task}: {_error(job)}"
    if found.dead.value > len(detail.dead):
        yield f"{'':<12}all of them: sereno job list 'group:{found.id} state:dead'"
    if found.dead.value:
        yield f"{'':<12}retry them: sereno job retry --state dead --search group:{found.id} --yes"


def _error(job: "JobLine") -> str:
    lines = (": ".join(part for part in (job.error_type, job.error_message) if part) or job.reason or "").splitlines()
    return lines[0] if lines else ""
