"""`sereno archive restore`: copy archived rows back for a while."""

from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING

import click

from sereno.cli.archive.context import archive_of, kind_named, place_of, refusals, span_options
from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.notifications.page import NotFound
from sereno.cli.options import bulk_options, context_options
from sereno.cli.output import counted, visible
from sereno.cli.progress import progress
from sereno.duration import seconds

if TYPE_CHECKING:
    from sereno.archive.restore import RestoreRequest, RestoreResult
    from sereno.cli.context import CommandContext


@click.command(epilog="Example: sereno archive restore job 4711 --for 30d")
@click.argument("kind", metavar="KIND")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@span_options
@click.option("--for", "keep", default="30d", show_default=True, help="How long restored rows stay.")
@click.option(
    "--without", multiple=True, metavar="COLUMN", help="Skip a column that the table no longer has; repeatable."
)
@bulk_options
@context_options
def restore(
    context: "CommandContext",
    kind: str,
    ids: tuple[str, ...],
    from_at: datetime | None,
    to_at: datetime | None,
    keep: str,
    without: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    fail_empty: bool,
) -> int:
    """Restore jobs, deliveries, events, log lines or rows of your own tables, by id or by time.

    Jobs come with their attempts, deliveries with their receipts. Existing rows are not changed. Restored rows are
    removed again after --for, unless they were changed.
    """
    from sereno.archive.restore import RestoreRequest  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.archive.rows import TimeSpan  # noqa: PLC0415 - see above

    span = TimeSpan(list(dict.fromkeys(ids)) or None, from_at, to_at)
    request = RestoreRequest(kind_named(kind), span, seconds(keep), without)
    request.check()
    if dry_run:
        found = _counted(context, request)
        click.echo(f"Would restore {counted(found, 'row')} of {visible(request.kind)}.")
    else:
        found = _done(context, request, yes=yes)
    if not found and ids and not dry_run:
        raise NotFound(f"the archive has no {visible(kind)} {visible(' '.join(ids))}")
    if not found and not dry_run:
        click.echo(f"The archive has no {visible(kind)} in that range.", err=True)
    if not found and fail_empty:
        return NOTHING_MATCHED
    return 0


def _counted(context: "CommandContext", request: "RestoreRequest") -> int:
    from sereno.archive.restore import count  # noqa: PLC0415 - see above
    from sereno.database.driver import drive  # noqa: PLC0415 - slow to import; --help needs none

    # Always closed: the plan holds copies of files.
    with (
        archive_of(context) as app,
        refusals(),
        progress("Count") as report,
        closing(count(request, place_of(app), report)) as plan,
    ):
        return drive(plan, app.database.run)


def _done(context: "CommandContext", request: "RestoreRequest", *, yes: bool) -> int:
    from sereno.archive.restore import restore as operation  # noqa: PLC0415 - see above
    from sereno.database.driver import drive  # noqa: PLC0415 - slow to import; --help needs none

    with (
        archive_of(context) as app,
        refusals(),
        progress("Restore") as report,
        closing(operation(request, place_of(app), report, yes=yes)) as plan,
    ):
        outcome = drive(plan, app.database.run)
    if outcome.rows.found:
        _report(outcome)
    return outcome.rows.found


def _report(outcome: "RestoreResult") -> None:
    rows, children = outcome.rows, outcome.children
    text = f"Restored {counted(rows.restored, 'row')} of {visible(outcome.kind)}"
    if outcome.children_kind is not None:
        text += f" and {children.restored:,} of {outcome.children_kind}"
    click.echo(f"{text}.")
    if rows.present:
        click.echo(f"{rows.present:,} already existed.", err=True)
    refused = rows.refused + children.refused
    if refused:
        click.echo(f"{refused:,} were refused by a unique constraint or a trigger.", err=True)
