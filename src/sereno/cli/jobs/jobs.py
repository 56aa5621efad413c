"""`sereno job …`: list, show, enqueue and change jobs."""

import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.jobs.operation import background_option, begin, check_rate
from sereno.cli.options import MomentType, RateType, bulk_options, context_options, filter_options, output_option
from sereno.cli.output import Column, chosen_form, counted, show_json, show_list, visible

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.jobs.filters import JobFilter
    from sereno.jobs.operations import ChangedJobs, JobTally

# Conflicting jobs of a retry that are listed one by one; the others are counted.
NAMED_CONFLICTS = 10


def _what_happened(line: Any) -> str:
    error = ": ".join(part for part in (line.error_type, line.error_message) if part)
    if line.state == "scheduled" and line.failures and error:
        return f"retry after {error}"
    return error or line.reason or ""


COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("state", lambda line: line.state, "state"),
    Column("task", lambda line: line.task, "name"),
    Column("queue", lambda line: line.queue, "name"),
    Column("tenant", lambda line: line.tenant, "name"),
    Column("attempt", lambda line: line.attempt, "number"),
    Column("run at", lambda line: line.run_at),
    Column("finished", lambda line: line.finished_at),
    Column("what happened", _what_happened, "wide"),
)


@click.group()
def job() -> None:
    """List, show, enqueue and change jobs."""


@job.command("list", epilog="""Example: sereno job list 'state:dead task:reconcile finished:1d..'""")
@click.argument("search", required=False)
@filter_options
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--before", type=int, metavar="ID", help="Only jobs created before this one: the next page.")
@click.option("--fail-empty", is_flag=True, help="Exit with 7 when nothing matches.")
@output_option
@context_options
def list_jobs(
    context: "CommandContext",
    wanted: "JobFilter",
    search: str | None,
    limit: int,
    before: int | None,
    fail_empty: bool,
    form: str,
) -> int:
    """List live and finished jobs, newest first. Dates in SEARCH are in the local time zone."""
    from sereno.jobs.operations import list_jobs as operation  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.queries.search import jobs_wanted  # noqa: PLC0415 - see above

    found = wanted.both(jobs_wanted(search or "", datetime.now().astimezone()))
    page = context.run(operation(found, limit=limit, before=before))
    show_list(form, page.items, COLUMNS, whole=page, empty="No job matches.")
    if page.next is not None and chosen_form(form) == "table":
        click.echo(f"There are more: add --before {page.next}", err=True)
    return NOTHING_MATCHED if fail_empty and not page.items else 0


@job.command(epilog="Example: sereno job show 4711")
@click.argument("job_id", type=int, metavar="JOB")
@output_option
@context_options
def show(context: "CommandContext", job_id: int, form: str) -> None:
    """Show a job with its attempts, steps and progress."""
    from sereno.archive.lookup import or_archived  # noqa: PLC0415 - see above
    from sereno.cli.jobs.job_page import show_page  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.operations import show as operation  # noqa: PLC0415 - see above

    detail = context.run(or_archived("job", job_id, operation(job_id)))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(detail, indent=2 if form == "json" else 0)
    else:
        show_page(detail)


@job.command(
    epilog="""Example: sereno job enqueue reconcile '{"account": "r42"}' --tenant r42 --delay 10m -a shop:app"""
)
@click.argument("task")
@click.argument("arguments", default="{}", metavar="[JSON]")
@click.option("-q", "--queue")
@click.option("-p", "--priority", type=click.IntRange(0, 9), help="0 runs first, 9 runs last.")
@click.option("--delay", metavar="DURATION", help='Wait before the job is due, such as "10m".')
@click.option("--run-at", type=MomentType(future=True), help="Time at which the job is due, such as 2026-11-15T03:00.")
@click.option("--expires-at", type=MomentType(future=True), help="Do not start the job after this time.")
@click.option("--tenant")
@click.option("--unique-key", help="Create no second job while one with this key is alive.")
@click.option("--tag", "tags", multiple=True, help="Repeatable.")
@click.option(
    "--after", multiple=True, type=click.IntRange(min=0), metavar="JOB", help="Wait for this job. Repeatable."
)
@click.option(
    "--on-dead",
    type=click.Choice(("wait", "continue", "cancel")),
    default="wait",
    show_default=True,
    help="What a dead job of --after means: wait until it is retried, continue, or cancel this one.",
)
@output_option
@context_options
def enqueue(context: "CommandContext", task: str, arguments: str, form: str, **options: Any) -> None:
    """Enqueue a job. The arguments are one JSON object; "-" reads it from stdin."""
    from sereno.jobs.job import JobOptions  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.operations import enqueue as operation  # noqa: PLC0415 - see above

    raw = sys.stdin.buffer.read() if arguments == "-" else arguments.encode()
    wanted = context.app.new_job(task, raw, JobOptions(**options))
    context.connection(create=True)
    (made,) = context.run(operation([wanted]))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(made, indent=2 if form == "json" else 0)
        return
    click.echo(made.id)
    click.echo("Enqueued." if made.created else "A job with this unique key already exists: this is it.", err=True)


@job.command(epilog='Example: sereno job retry --state dead --error "connection reset" --rate 50/s --dry-run')
@click.argument("ids", nargs=-1, type=int, metavar="[JOB]...")
@filter_options
@click.option("--rate", type=RateType(), help="Jobs per second, such as 50/s.  [default: all at once]")
@background_option
@bulk_options
@output_option
@context_options
def retry(
    context: "CommandContext",
    ids: tuple[int, ...],
    wanted: "JobFilter",
    rate: float | None,
    background: bool,
    dry_run: bool,
    yes: bool,
    **rest: Any,
) -> int:
    """Retry finished jobs under their own ids, with all their attempts again."""
    from sereno.jobs import operations as jobs  # noqa: PLC0415 - slow to import; --help needs none

    chosen = _chosen(ids, wanted)
    if dry_run:
        tally = context.run(jobs.count_retry(chosen))
        pace = f", {tally.total.value / rate:.1f} s at {rate:g}/s" if rate else ""
        return _report_tally("retry", tally, pace, **rest)
    if background:
        return begin(context, "job.retry", chosen, rate=rate, reason=None, yes=yes, **rest)
    changed = context.carry_out(jobs.retry(chosen, rate=rate, yes=yes))
    return _report_changed("Retried", changed, ids, "a live job has their unique key", **rest)


@job.command(epilog="Example: sereno job cancel 4711 4712")
@click.argument("ids", nargs=-1, type=int, metavar="[JOB]...")
@filter_options
@click.option("--reason", help="Reason, stored with the job.")
@click.option("--rate", type=RateType(), help="With --background: jobs per second, such as 50/s.")
@background_option
@bulk_options
@output_option
@context_options
def cancel(
    context: "CommandContext",
    ids: tuple[int, ...],
    wanted: "JobFilter",
    reason: str | None,
    rate: float | None,
    background: bool,
    dry_run: bool,
    yes: bool,
    **rest: Any,
) -> int:
    """Cancel waiting jobs, and request running jobs to stop."""
    from sereno.jobs import operations as jobs  # noqa: PLC0415 - slow to import; --help needs none

    chosen = _chosen(ids, wanted)
    if dry_run:
        return _report_tally("cancel", context.run(jobs.count_cancel(chosen)), "", **rest)
    if background:
        return begin(context, "job.cancel", chosen, rate=rate, reason=reason, yes=yes, **rest)
    check_rate(rate)
    changed = context.carry_out(jobs.cancel(chosen, reason=reason, yes=yes))
    return _report_changed("Cancelled", changed, ids, "they ended in the meantime", **rest)


@job.command(epilog="Example: sereno job delete --state cancelled --finished-before 7d --yes")
@click.argument("ids", nargs=-1, type=int, metavar="[JOB]...")
@filter_options
@click.option("--rate", type=RateType(), help="With --background: jobs per second, such as 50/s.")
@background_option
@bulk_options
@output_option
@context_options
def delete(
    context: "CommandContext",
    ids: tuple[int, ...],
    wanted: "JobFilter",
    rate: float | None,
    background: bool,
    dry_run: bool,
    yes: bool,
    **rest: Any,
) -> int:
    """Delete waiting or finished jobs for good. Running jobs are never deleted."""
    from sereno.jobs import operations as jobs  # noqa: PLC0415 - slow to import; --help needs none

    chosen = _chosen(ids, wanted)
    if dry_run:
        return _report_tally("delete", context.run(jobs.count_delete(chosen)), "", **rest)
    if background:
        return begin(context, "job.delete", chosen, rate=rate, reason=None, yes=yes, **rest)
    check_rate(rate)
    return _report_changed(
        "Deleted", context.carry_out(jobs.delete(chosen, yes=yes)), ids, "they started in the meantime", **rest
    )


@job.command(epilog="Example: sereno job token 4711 --valid-for 15m")
@click.argument("job_id", type=int, metavar="JOB")
@click.option("--valid-for", default="1h", show_default=True, metavar="DURATION", help="Time until the token expires.")
@context_options
def token(context: "CommandContext", job_id: int, valid_for: str) -> None:
    """Sign a token that lets a client watch the state, progress and chunks of one job, and nothing else."""
    from sereno.jobs.job_token import sign_token  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.operations import show as operation  # noqa: PLC0415 - see above

    context.run(operation(job_id))
    click.echo(sign_token(context.settings.secret, job_id, valid_for, time.time()))


def _chosen(ids: tuple[int, ...], wanted: "JobFilter") -> "JobFilter":
    import dataclasses  # noqa: PLC0415 - slow to import; --help needs none

    if not ids and wanted.is_empty:
        raise click.UsageError("Which jobs? Name them by id, or give a filter such as --state dead.")
    return dataclasses.replace(wanted, ids=ids) if ids else wanted


def _report_tally(verb: str, tally: "JobTally", pace: str, *, form: str, fail_empty: bool) -> int:
    if chosen_form(form) in ("json", "jsonl"):
        show_json(tally, indent=2 if form == "json" else 0)
    elif not tally.total.value:
        click.echo(f"No job matches: there is nothing to {verb}.")
    else:
        tenants = f", {counted(len(tally.by_tenant), 'tenant')}" if tally.by_tenant else ""
        click.echo(f"Would {verb} {counted(tally.total, 'job')}{tenants}{pace}.")
        for title, counts in (("task", tally.by_task), ("queue", tally.by_queue), ("tenant", tally.by_tenant)):
            if counts:
                parts = ", ".join(f"{visible(name)} {count:,}" for name, count in list(counts.items())[:8])
                click.echo(f"  by {title}: {parts}")
    return NOTHING_MATCHED if fail_empty and not tally.total.value else 0


def _report_changed(
    done: str, changed: "ChangedJobs", ids: tuple[int, ...], why_left: str, *, form: str, fail_empty: bool
) -> int:
    touched = len(changed.done) + len(changed.stopping)
    if chosen_form(form) in ("json", "jsonl"):
        show_json(changed, indent=2 if form == "json" else 0)
    else:
        _echo_if(touched, lambda: f"{done}: {counted(len(changed.done), 'job')}." if changed.done else "")
        _echo_if(
            len(changed.stopping), lambda: f"Stop requested, still running: {counted(len(changed.stopping), 'job')}."
        )
        _echo_if(len(changed.left), lambda: f"Unchanged, because {why_left}: {counted(len(changed.left), 'job')}.")
        for conflict in changed.conflicts[:NAMED_CONFLICTS]:
            click.echo(f"  {conflict.job}: job {conflict.held_by} has its unique key")
        if len(changed.conflicts) > NAMED_CONFLICTS:
            click.echo(f"  and {len(changed.conflicts) - NAMED_CONFLICTS:,} more; list them all with -o json")
        if not touched and not changed.left:
            click.echo("No job matched: nothing was changed.")
    known = {*changed.done, *changed.stopping, *changed.left}
    unknown = [str(job_id) for job_id in ids if job_id not in known]
    if unknown:
        click.echo(f"Unknown, or not in a state for this: {', '.join(unknown)} (see `sereno why`).", err=True)
    return NOTHING_MATCHED if not touched and (fail_empty or ids) else 0


def _echo_if(count: int, text: Callable[[], str]) -> None:
    if count and (line := text()):
        click.echo(line)
