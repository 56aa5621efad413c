"""`sereno schedule pause`, `resume`, `disable`, `delete` and `spread`: one schedule by key, or many by a filter."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.jobs.operation import background_option, check_rate, counted_in_time, rate_option, tell_begun
from sereno.cli.options import MomentType, bulk_options, context_options, output_option
from sereno.cli.output import chosen_form, show_json
from sereno.cli.schedules.options import confirm, existing, how_many, which_options, would

if TYPE_CHECKING:
    from sereno.bulk.operations import ScheduleBulkRequest
    from sereno.cli.context import CommandContext
    from sereno.database.statement import Operation
    from sereno.jobs.filters import ScheduleFilter
    from sereno.jobs.rows import ScheduleAction
    from sereno.schedules.lists import Verb

F = TypeVar("F", bound=Callable[..., Any])

UNTIL = 'A local date, one with an offset such as 2027-01-08T00:00-03:00, or a duration from now such as "2h".'
PARKED_AGAIN = 'an invalid rule is parked again; change it with "sereno schedule add".'
DONE = {
    "pause": "Paused",
    "resume": "Resumed",
    "disable": "Disabled",
    "delete": "Deleted",
    "spread": "Spread",
}


def change_options(function: F) -> F:
    """Add the options of commands that change many schedules, at once or in the background."""
    return rate_option(background_option(bulk_options(function)))


@click.command(epilog='Example: sereno schedule pause "menu:*" --tenant r42 --until 2027-01-08 --note "holidays" --yes')
@which_options()
@click.option("--until", type=MomentType(future=True), help=UNTIL)
@click.option("--note", help="Reason, shown with the schedule.")
@change_options
@output_option
@context_options
def pause(
    context: "CommandContext", wanted: "ScheduleFilter", until: datetime | None, note: str | None, **rest: Any
) -> int:
    """Pause schedules, for good or until a date. Active runs continue."""
    from sereno.bulk.operations import ScheduleBulkRequest  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.operations import pause as operation  # noqa: PLC0415 - see above

    _check_note(note)
    detail = "" if until is None else f", until {_local_time(until)}"
    how = ScheduleBulkRequest(until=until, note=note)
    return _change(context, "pause", wanted, partial(operation, until=until, note=note), detail, how=how, **rest)


@click.command(epilog="Example: sereno schedule resume reconcile:r42")
@which_options()
@change_options
@output_option
@context_options
def resume(context: "CommandContext", wanted: "ScheduleFilter", **rest: Any) -> int:
    """Resume schedules from now on. Instants that passed in the meantime are not run."""
    from sereno.schedules.operations import resume as operation  # noqa: PLC0415 - slow to import; --help needs none

    later = rest["dry_run"] or rest["background"]
    parked = 0 if wanted.is_empty or later else _parked(context, wanted)
    code = _change(context, "resume", wanted, operation, "", **rest)
    if parked:
        were = "1 of them was" if parked == 1 else f"{parked:,} of them were"
        click.echo(f"{'It was' if wanted.keys else were} parked: {PARKED_AGAIN}", err=True)
    return code


def _parked(context: "CommandContext", wanted: "ScheduleFilter") -> int:
    from dataclasses import replace  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.schedules.lists import tally  # noqa: PLC0415 - see above

    return context.run(tally(replace(wanted, states=["parked"]), "resume")).total.value


@click.command(epilog='Example: sereno schedule disable reconcile:r42 --note "the account is closed"')
@which_options()
@click.option("--note", help="Reason, shown with the schedule.")
@change_options
@output_option
@context_options
def disable(context: "CommandContext", wanted: "ScheduleFilter", note: str | None, **rest: Any) -> int:
    """Disable schedules until they are resumed."""
    from sereno.bulk.operations import ScheduleBulkRequest  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.operations import disable as operation  # noqa: PLC0415 - see above

    _check_note(note)
    return _change(
        context, "disable", wanted, partial(operation, note=note), "", how=ScheduleBulkRequest(note=note), **rest
    )


@click.command(epilog="Example: sereno schedule delete --tenant r42 --dry-run")
@which_options()
@change_options
@output_option
@context_options
def delete(context: "CommandContext", wanted: "ScheduleFilter", **rest: Any) -> int:
    """Delete schedules for good. Their jobs stay as history."""
    from sereno.schedules.operations import delete as operation  # noqa: PLC0415 - slow to import; --help needs none

    return _change(context, "delete", wanted, operation, "", **rest)


@click.command(epilog='Example: sereno schedule spread "reconcile:*" --over 20m --dry-run')
@which_options()
@click.option("--over", required=True, metavar="DURATION", help='Window, such as "20m"; 0 removes the spread.')
@change_options
@output_option
@context_options
def spread(context: "CommandContext", wanted: "ScheduleFilter", over: str, **rest: Any) -> int:
    """Spread schedules over a window. Each one fires at its own fixed offset after each instant."""
    from sereno.bulk.operations import ScheduleBulkRequest  # noqa: PLC0415 - see above
    from sereno.duration import duration_text, seconds  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.operations import spread as operation  # noqa: PLC0415 - see above
    from sereno.schedules.rules.when import Daily, checked  # noqa: PLC0415 - see above

    # Check the window first, with the error messages of a rule.
    checked(Daily("00:00", spread=over))
    detail = f" over {duration_text(seconds(over))}" if seconds(over) else ": removed"
    how = ScheduleBulkRequest(window=over)
    return _change(context, "spread", wanted, partial(operation, window=over), detail, how=how, **rest)


def _change(
    context: "CommandContext",
    verb: "Verb",
    wanted: "ScheduleFilter",
    operation: "Callable[[ScheduleFilter], Operation[int]]",
    detail: str,
    *,
    dry_run: bool,
    yes: bool,
    form: str,
    fail_empty: bool,
    background: bool,
    rate: float | None,
    how: "ScheduleBulkRequest | None" = None,
) -> int:
    from sereno.schedules.lists import in_batches  # noqa: PLC0415 - slow to import; --help needs none

    if wanted.is_empty:
        raise click.UsageError('Name a key or a pattern such as "menu:*", or pass --task, --tenant or --search.')
    if dry_run:
        return _report_tally(context, verb, wanted, detail, form, fail_empty=fail_empty)
    confirmed = confirm(context, verb, wanted, yes)
    state = existing(context, next(iter(wanted.keys))).state if wanted.keys else None
    if background and confirmed:
        return _begin(context, verb, wanted, how, rate=rate, form=form, fail_empty=fail_empty)
    if not background:
        check_rate(rate)
    changed = context.carry_out(in_batches(wanted, operation)) if confirmed else 0
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"changed": changed}, indent=2 if form == "json" else 0)
    elif changed:
        click.echo(f"{DONE[verb]}: {how_many(changed)}{detail}.")
    elif state is None or wanted.task or wanted.tenant or wanted.search_params:
        click.echo("No schedule matched: nothing was changed.")
    else:
        click.echo(f"It is {state}: there is nothing to {verb}.", err=True)
    return NOTHING_MATCHED if not changed and fail_empty else 0


ACTIONS: "dict[Verb, ScheduleAction]" = {
    "pause": "schedule.pause",
    "resume": "schedule.resume",
    "disable": "schedule.disable",
    "delete": "schedule.delete",
    "spread": "schedule.spread",
}


def _begin(
    context: "CommandContext",
    verb: "Verb",
    wanted: "ScheduleFilter",
    how: "ScheduleBulkRequest | None",
    *,
    rate: float | None,
    form: str,
    fail_empty: bool,
) -> int:
    """Start a background operation on schedules; the caller has confirmed it."""
    from sereno.bulk import operations as bulk  # noqa: PLC0415 - slow to import; --help needs none

    action = ACTIONS[verb]
    total = counted_in_time(context, bulk.count_schedules(action, wanted))
    made = context.run(bulk.begin_schedules(action, wanted, how, rate=rate, yes=True, total=total))
    return tell_begun(made, form=form, fail_empty=fail_empty)


def _report_tally(
    context: "CommandContext", verb: "Verb", wanted: "ScheduleFilter", detail: str, form: str, *, fail_empty: bool
) -> int:
    from sereno.schedules.lists import tally  # noqa: PLC0415 - slow to import; --help needs none

    if wanted.keys:
        existing(context, next(iter(wanted.keys)))
    found = context.run(tally(wanted, verb))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(found, indent=2 if form == "json" else 0)
    else:
        click.echo(would(verb, found, detail))
    return NOTHING_MATCHED if fail_empty and not found.total.value else 0


def _local_time(until: datetime) -> str:
    """Return the local time, with seconds if they are not zero."""
    local = until.astimezone()
    return f"{local:%a %Y-%m-%d %H:%M:%S %Z}" if local.second or local.microsecond else f"{local:%a %Y-%m-%d %H:%M %Z}"


def _check_note(note: str | None) -> None:
    from sereno.text import check_text  # noqa: PLC0415 - slow to import; --help needs none

    check_text("note", note)
