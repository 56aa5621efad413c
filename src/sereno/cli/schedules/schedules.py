"""`sereno schedule …`: list and show schedules. Commands that change and fire them are in the other modules."""

from typing import TYPE_CHECKING, Any

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.options import context_options, output_option
from sereno.cli.output import chosen_form, show_json, show_list
from sereno.cli.schedules.change import delete, disable, pause, resume, spread
from sereno.cli.schedules.files import export_schedules, import_schedules
from sereno.cli.schedules.fire import backfill, run_now, tick
from sereno.cli.schedules.heatmap import heatmap
from sereno.cli.schedules.options import existing, which_options
from sereno.cli.schedules.write import add, preview
from sereno.errors import InvalidArguments

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.jobs.filters import ScheduleFilter


class ScheduleGroup(click.Group):
    """Lists its commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RecursionError as error:
            raise InvalidArguments("the JSON is nested too deeply") from error


@click.group(cls=ScheduleGroup)
def schedule() -> None:
    """List, create, change and fire schedules."""


@schedule.command("list", epilog='Example: sereno schedule list "menu:*" --tenant r42 --soonest')
@which_options(states=True)
@click.option("--soonest", is_flag=True, help="Sort by next run.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@click.option("--after", metavar="KEY", default="", help="Only keys after this one: the next page.")
@click.option("--fail-empty", is_flag=True, help="Exit with 7 when nothing matches.")
@output_option
@context_options
def list_schedules(
    context: "CommandContext",
    wanted: "ScheduleFilter",
    soonest: bool,
    limit: int,
    after: str,
    fail_empty: bool,
    form: str,
) -> int:
    """List schedules with their last and next runs. Times are in the schedule's time zone."""
    from sereno.cli.schedules.table import PLAIN, as_object, lines, table_columns  # noqa: PLC0415 - slow to import
    from sereno.schedules.lists import list_schedules as operation  # noqa: PLC0415 - see above
    from sereno.text import check_text  # noqa: PLC0415 - see above

    if soonest and after:
        raise click.UsageError("--after pages by key and cannot be used with --soonest.")
    check_text("after", after or None)
    page = context.run(operation(wanted, limit=limit, after=after, soonest=soonest))
    empty = "No schedule matches."
    match chosen_form(form):
        case "table":
            found = lines(page)
            show_list("table", found, table_columns(found), empty=empty)
        case "tsv":
            show_list(form, lines(page), PLAIN, empty=empty)
        case "json" | "jsonl":
            items = [as_object(row) for row in page.items]
            show_list(form, items, (), whole={"items": items, "next": page.next}, empty=empty)
    if page.next is not None and chosen_form(form) == "table":
        click.echo(f"There are more: add --after {page.next!r}", err=True)
    return NOTHING_MATCHED if fail_empty and not page.items else 0


@schedule.command(epilog="Example: sereno schedule show reconcile:r42")
@click.argument("key")
@click.option(
    "-n",
    "--runs",
    default=10,
    show_default=True,
    type=click.IntRange(0, 1000),
    help="Number of runs and skips to show.",
)
@output_option
@context_options
def show(context: "CommandContext", key: str, runs: int, form: str) -> None:
    """Show a schedule with its last and next runs."""
    from sereno.cli.schedules.page import page_object, show_page  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.cli.schedules.runs import FIRES_READ  # noqa: PLC0415 - see above
    from sereno.schedules.operations import show as operation  # noqa: PLC0415 - see above
    from sereno.schedules.runs import last_job  # noqa: PLC0415 - see above

    existing(context, key)
    as_json = chosen_form(form) in ("json", "jsonl")
    detail = context.run(operation(key, fires=runs if as_json or not runs else FIRES_READ))
    last = context.run(last_job(detail))
    if as_json:
        show_json(page_object(detail, last), indent=2 if form == "json" else 0)
    else:
        show_page(detail, last, runs)


@schedule.command("next", epilog="Example: sereno schedule next menu:42 -n 10")
@click.argument("key")
@click.option("-n", "--count", default=5, show_default=True, type=click.IntRange(1, 1000))
@output_option
@context_options
def next_instants(context: "CommandContext", key: str, count: int, form: str) -> None:
    """Show the next runs of a schedule, with notes on clock changes."""
    from sereno.cli.schedules import text  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.lists import clock_of, in_words, upcoming_fires  # noqa: PLC0415 - see above
    from sereno.schedules.operations import show as operation  # noqa: PLC0415 - see above

    existing(context, key)
    detail = context.run(operation(key, fires=0, upcoming=count))
    row = detail.schedule
    if chosen_form(form) in ("json", "jsonl"):
        upcoming = upcoming_fires(detail.upcoming)
        found = {"key": row.key, "when": in_words(row.rule), "state": row.state, "paused_until": row.paused_until}
        show_json(found | {"upcoming": upcoming}, indent=2 if form == "json" else 0)
        return
    click.echo(text.row_headline(row))
    if row.state == "enabled" and text.effective_state(row, detail.now) == "paused":
        click.echo(f"  {text.state_words(row, detail.now)}")
    for line in text.instant_lines(detail.upcoming, clock_of(row.rule), detail.now):
        click.echo(f"  {line}")
    if not detail.upcoming:
        click.echo(f"  {text.no_instants(row, detail.now)}")


for command in (
    add,
    preview,
    pause,
    resume,
    disable,
    delete,
    run_now,
    tick,
    spread,
    backfill,
    export_schedules,
    import_schedules,
    heatmap,
):
    schedule.add_command(command)
