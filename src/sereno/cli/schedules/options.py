"""Options that the schedule commands share: filters, rules, and times in a named zone."""

import functools
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sereno.cli.options import searched
from sereno.cli.output import counted, visible
from sereno.duration import seconds
from sereno.errors import ConfigurationError, InvalidArguments, InvalidSchedule, Refused

if TYPE_CHECKING:
    from datetime import tzinfo

    from sereno.cli.context import CommandContext
    from sereno.jobs.filters import ScheduleFilter
    from sereno.schedules.lists import ScheduleTally, Verb
    from sereno.schedules.rows import ScheduleRow
    from sereno.schedules.rules.when import When

F = TypeVar("F", bound=Callable[..., Any])

STATES = ("enabled", "paused", "disabled", "parked", "finished")
RULE_NAMES = ("cron", "every", "count_from", "phase", "daily", "at", "tz", "spread", "dst_gap", "dst_fold")
OPTIONS_OF_FIELDS = {"at": "--daily", "interval": "--every", "phase": "--phase", "spread": "--spread"}
# Tasks and states that the summary of a bulk change names.
NAMED_TASKS = 8


class NoSchedule(click.ClickException):
    """The named schedule does not exist."""

    exit_code = 7


def which_options(*, states: bool = False) -> Callable[[F], F]:
    """Add the options that select schedules. The command receives them as one ScheduleFilter, `wanted`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(*args: Any, which: str | None, search: str | None, **options: Any) -> Any:
            named = {name: options.pop(name) for name in ("tenant", "task")}
            chosen = options.pop("states", None) or None
            return function(*args, wanted=_filter(which, search, **named, states=chosen), **options)

        options = [
            click.argument("which", required=False, metavar="[KEY|PATTERN]"),
            click.option("-t", "--task"),
            click.option("--tenant"),
            click.option("--search", metavar="TEXT", help="A search such as 'kind:cron last:dead next:..tomorrow'."),
        ]
        if states:
            options.append(
                click.option("-s", "--state", "states", multiple=True, type=click.Choice(STATES), help="Repeatable.")
            )
        made: Any = command
        for option in reversed(options):
            made = option(made)
        return made  # type: ignore[no-any-return]  # the wrapper takes what click gives and returns what F returns

    return decorate


def _filter(which: str | None, search: str | None, **others: Any) -> "ScheduleFilter":
    from sereno.jobs.filters import ScheduleFilter  # noqa: PLC0415 - see above
    from sereno.schedules.search_fields import SCHEDULE_FIELDS  # noqa: PLC0415 - see above
    from sereno.text import check_text  # noqa: PLC0415 - slow to import; --help needs none

    for name, value in (("key", which), ("tenant", others.get("tenant")), ("task", others.get("task"))):
        check_text(name, value)
    return ScheduleFilter.of(which, **others, search_params=searched(search, SCHEDULE_FIELDS))


def in_filter_words(wanted: "ScheduleFilter") -> str:
    """Return the filter as text."""
    given = [*(wanted.keys or ()), *([wanted.pattern] if wanted.pattern else [])]
    given += [f"{name} {value}" for name, value in (("task", wanted.task), ("tenant", wanted.tenant)) if value]
    given += [wanted.search_params.text] if wanted.search_params is not None else []
    return ", ".join(given) or "any"


def rule_options(function: F) -> F:
    """Add the options of a rule. The command receives them as `rule`, for `as_rule`."""

    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        rule = {name: options.pop(name, None) for name in RULE_NAMES}
        return function(*args, rule=rule, **options)

    made: Any = command
    for option in reversed(
        (
            click.option("--cron", metavar="EXPRESSION", help='A cron expression, such as "30 9 * * MON-FRI".'),
            click.option("--every", metavar="DURATION", help='An interval, such as "5m".'),
            click.option(
                "--count-from", type=click.Choice(["plan", "end", "clock"]), help="Start of the interval of --every."
            ),
            click.option("--phase", metavar="DURATION", help="Offset from the marks of the clock."),
            click.option("--daily", metavar="TIME", help='A time of day, such as "03:00".'),
            click.option("--at", metavar="DATE", help="Once, at a time in the zone of --tz, such as 2026-11-15T03:00."),
            click.option("--tz", metavar="ZONE", help="Time zone, such as Europe/Riga.  [default: UTC]"),
            click.option("--spread", metavar="DURATION", help="Window over which schedules are spread."),
            click.option(
                "--dst-gap", type=click.Choice(["shift", "skip"]), help="Policy for a time that the clock skips."
            ),
            click.option(
                "--dst-fold",
                type=click.Choice(["first", "second", "both"]),
                help="Policy for a time that occurs twice.",
            ),
        )
    ):
        made = option(made)
    return made  # type: ignore[no-any-return]  # the wrapper takes what click gives and returns what F returns


def as_rule(options: dict[str, Any]) -> "When":
    """Return the rule of these options; raise UsageError when it is incomplete."""
    from sereno.schedules.rules.when import decode  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.zones import zone  # noqa: PLC0415 - see above

    given = {name: value for name, value in options.items() if value is not None}
    kinds = [name for name in ("cron", "every", "daily", "at") if name in given]
    if len(kinds) != 1:
        raise click.UsageError("Pass exactly one of --cron, --every, --daily and --at.")
    (kind,) = kinds
    if kind != "every":
        _refuse(given, ("count_from", "phase"), "needs --every")
    value = given.pop(kind)
    if kind == "at":
        _refuse(given, ("spread", "dst_gap", "dst_fold"), "has no effect with --at")
        moment = MomentsType("--at", zone(given.get("tz", "UTC")).info).read(value)
        return decode({"kind": "once", "at": moment.isoformat()})
    first = {"cron": "expression", "every": "interval", "daily": "at"}[kind]
    try:
        return decode({"kind": kind, first: value, **given})
    except InvalidSchedule as error:
        raise InvalidSchedule(_in_options(str(error))) from None


def _in_options(message: str) -> str:
    """Replace the field name in an error about a rule with the option that set it."""
    field, space, rest = message.partition(" ")
    name = field.removesuffix(":")
    option = OPTIONS_OF_FIELDS.get(name, name)
    return f"{option}{field[len(name) :]}{space}{rest}".replace('count_from="clock"', "--count-from clock")


def _refuse(given: dict[str, Any], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name in given:
            raise click.UsageError(f"--{name.replace('_', '-')} {why}.")


class MomentsType:
    """Reads a date in this zone, or a duration before or after now."""

    def __init__(self, name: str, clock: "tzinfo", *, now: datetime | None = None, back: bool = False) -> None:
        self._name = name
        self._clock = clock
        self._now = now or datetime.now(UTC)
        self._sign = -1 if back else 1

    def read(self, text: str) -> datetime:
        try:
            return self._now + self._sign * timedelta(seconds=seconds(text))
        except (ConfigurationError, OverflowError):
            pass
        try:
            found = datetime.fromisoformat(text)
            return (found.replace(tzinfo=self._clock) if found.tzinfo is None else found).astimezone(UTC)
        except (ValueError, OverflowError):
            raise InvalidArguments(
                f'{self._name} {text!r:.60}: expected a date such as 2026-11-15T03:00 or a duration such as "2h"'
            ) from None


def existing(context: "CommandContext", key: str) -> "ScheduleRow":
    """Return the schedule with this key; exit with 7 when it does not exist."""
    from sereno.schedules.operations import find  # noqa: PLC0415 - see above
    from sereno.text import check_text  # noqa: PLC0415 - slow to import; --help needs none

    check_text("key", key)
    try:
        return context.run(find(key))
    except InvalidSchedule as error:
        raise NoSchedule(str(error)) from None


def confirm(context: "CommandContext", verb: "Verb", wanted: "ScheduleFilter", yes: bool) -> bool:
    """Confirm a change of all schedules that a filter matches; a key needs no confirmation. False: nothing matches."""
    from sereno.schedules.lists import tally  # noqa: PLC0415 - slow to import; --help needs none

    if yes or wanted.keys is not None:
        return True
    if not is_interactive():
        raise Refused(
            f"this would {verb} every schedule that matches ({in_filter_words(wanted)}): "
            "check with --dry-run, confirm with --yes"
        )
    found = context.run(tally(wanted, verb))
    if not found.total.value:
        return False
    click.echo(would(verb, found), err=True)
    ask("Continue?")
    return True


def ask(question: str) -> None:
    """Ask on the terminal; raise Refused unless the user says yes."""
    if not click.confirm(question, err=True):
        raise Refused("nothing was changed")


def is_interactive() -> bool:
    """Return whether a user can be asked for confirmation."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def would(verb: str, found: "ScheduleTally", detail: str = "") -> str:
    """Return what a bulk change would affect."""
    if not found.total.value:
        return f"No schedule matches: there is nothing to {verb}."
    counts = [
        f"  by {name}: " + ", ".join(f"{visible(key)} {count:,}" for key, count in list(values.items())[:NAMED_TASKS])
        for name, values in (("state", found.by_state), ("task", found.by_task))
    ]
    return "\n".join([f"Would {verb} {how_many(found.total)}{detail}.", *counts])


def how_many(count: Any) -> str:
    """Return the count with its noun: 1 schedule, 2,000 schedules."""
    return counted(count, "schedule")
