"""`sereno archive restore`: what was archived comes back for a while."""

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
@click.option("--for", "keep", default="30d", show_default=True, help="It stays for so long.")
@click.option("--without", multiple=True, metavar="COLUMN", help="A column that the table no longer has. Repeatable.")
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
    """Bring back a job, a delivery, an event, log lines, or all of a span of time; KIND may be a table of your own.

    Jobs come with their attempts, deliveries with their receipts. What is there already is left alone. When its time
    is over it leaves again, unless somebody changed it.
    """
    from sereno.archive.restore import RestoreRequest  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.archive.restore_store import Span  # noqa: PLC0415 - see above

    span = Span(list(dict.fromkeys(ids)) or None, from_at, to_at)
    asked = RestoreRequest(kind_named(kind), span, seconds(keep), without)
    asked.check()
    if dry_run:
        found = _counted(context, asked)
        click.echo(f"{counted(found, 'row')} of {visible(asked.kind)} would come back. Nothing was done.")
    else:
        found = _done(context, asked, yes=yes)
    if not found and ids and not dry_run:
        raise NotFound(f"the archive has no {visible(kind)} {visible(' '.join(ids))}")
    if not found and not dry_run:
        click.echo(f"The archive has nothing of {visible(kind)} in that time.", err=True)
    if not found and fail_empty:
        return NOTHING_MATCHED
    return 0


def _counted(context: "CommandContext", asked: "RestoreRequest") -> int:
    from sereno.archive.restore import count  # noqa: PLC0415 - see above
    from sereno.database.driver import drive  # noqa: PLC0415 - slow to import; --help needs none

    # Closed wherever it ends: it holds copies of files.
    with (
        archive_of(context) as app,
        refusals(),
        progress("Count") as said,
        closing(count(asked, place_of(app), said)) as plan,
    ):
        return drive(plan, app.database.run)


def _done(context: "CommandContext", asked: "RestoreRequest", *, yes: bool) -> int:
    from sereno.archive.restore import restore as operation  # noqa: PLC0415 - see above
    from sereno.database.driver import drive  # noqa: PLC0415 - slow to import; --help needs none

    with (
        archive_of(context) as app,
        refusals(),
        progress("Restore") as said,
        closing(operation(asked, place_of(app), said, yes=yes)) as plan,
    ):
        outcome = drive(plan, app.database.run)
    if outcome.brought.found:
        _tell(outcome)
    return outcome.brought.found


def _tell(outcome: "RestoreResult") -> None:
    brought, children = outcome.brought, outcome.children
    words = f"{counted(brought.restored, 'row')} of {visible(outcome.kind)}"
    if outcome.children_kind is not None:
        words += f" and {children.restored:,} of {outcome.children_kind}"
    click.echo(f"{words} came back.")
    if brought.present:
        click.echo(f"{brought.present:,} were there already.", err=True)
    refused = brought.refused + children.refused
    if refused:
        click.echo(f"{refused:,} were refused: another row has what must be unique, or a trigger said no.", err=True)
