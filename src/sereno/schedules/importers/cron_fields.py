"""Writes sets of numbers as fields of a cron expression.

Celery and APScheduler require the day of the month *and* the day of the week to match. Here, as in cron, either is
enough unless one of them begins with a star; `days` finds the equivalent expression.
"""

from collections.abc import Set as AbstractSet
from itertools import groupby

from sereno.schedules.importers.draft import UnreadableSchedule

SECONDS = MINUTES = (0, 59)
HOURS = (0, 23)
MONTH_DAYS = (1, 31)
MONTHS = (1, 12)
WEEKDAYS = (0, 6)

WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
EVERY_MONTH_DAY = frozenset(range(1, 32))
EVERY_WEEKDAY = frozenset(range(7))
# The days on which a weekday occurs for the first time in a month, for the second time, and so on.
_WEEKS = [frozenset(range(first, min(first + 7, 32))) for first in range(1, 32, 7)]
# A step that leaves only the first value: it makes a list begin with a star.
_ONLY_THE_FIRST, _ONLY_SUNDAY = "*/31", "*/8"
# Values in a row from which on they are written as a range.
_A_RUN = 3


def field(values: AbstractSet[int], bounds: tuple[int, int], *, star: bool = False) -> str:
    """Return the field that matches exactly these values. `star`: prefer */n."""
    low, high = bounds
    every = range(low, high + 1)
    if not values:
        raise UnreadableSchedule("it never fires: one of its fields matches nothing")
    if len(values) == len(every):
        return "*"
    for step in range(2, len(every) + 1) if star else ():
        if set(every[::step]) == values:
            return f"*/{step}"
    return ",".join(_runs(values))


def days(month_days: AbstractSet[int], weekdays: AbstractSet[int], *, star: bool = False) -> tuple[str, str]:
    """Return a day of month and a day of week that must both match. `star`: prefer */n for the day of month."""
    if weekdays == EVERY_WEEKDAY:
        return field(month_days, MONTH_DAYS, star=star), "*"
    names = _names(weekdays)
    if month_days == EVERY_MONTH_DAY:
        return "*", names
    if (stepped := field(month_days, MONTH_DAYS, star=True)).startswith("*"):
        return stepped, names
    weeks = [number for number, week in enumerate(_WEEKS, 1) if week <= month_days]
    if month_days == frozenset().union(*(_WEEKS[number - 1] for number in weeks)):
        return "*", ",".join(f"{name}#{number}" for number in weeks for name in names_of(weekdays))
    if 1 in month_days:
        return ",".join([_ONLY_THE_FIRST, *_runs(month_days - {1})]), names
    if 0 in weekdays:
        return field(month_days, MONTH_DAYS), ",".join([_ONLY_SUNDAY, *names_of(weekdays - {0})])
    raise UnreadableSchedule(
        f"days {field(month_days, MONTH_DAYS)} of a month that are also {names}: no cron expression can express that; "
        "schedule one of the two and let the task check the other"
    )


def special_days(
    month_days: AbstractSet[int], weekdays: AbstractSet[int], *, last: bool, positions: AbstractSet[str]
) -> tuple[str, str]:
    """Like `days`, for days of the month that include the last one, or positions such as FRI#2."""
    if weekdays != EVERY_WEEKDAY:
        raise UnreadableSchedule(
            "a special day of the month that is also a certain weekday: a cron expression cannot express that"
        )
    if month_days == EVERY_MONTH_DAY:
        return "*", "*"
    # Without a star, either one is enough to match.
    plain = [*_runs(month_days), *(["L"] if last else [])]
    return ",".join(plain) or "*", ",".join(sorted(positions)) or "*"


def names_of(weekdays: AbstractSet[int]) -> list[str]:
    return [WEEKDAY_NAMES[day] for day in sorted(weekdays)]


def _names(weekdays: AbstractSet[int]) -> str:
    """Return MON-FRI, or a list."""
    if not weekdays:
        raise UnreadableSchedule("it never fires: its day of week matches nothing")
    names = names_of(weekdays)
    is_run = len(names) >= _A_RUN and max(weekdays) - min(weekdays) == len(weekdays) - 1
    return f"{names[0]}-{names[-1]}" if is_run else ",".join(names)


def _runs(values: AbstractSet[int]) -> list[str]:
    """Return runs of values as ranges: 1, 2, 3, 7 as "1-3" and "7"."""
    found: list[str] = []
    for _, numbered in groupby(enumerate(sorted(values)), key=lambda pair: pair[1] - pair[0]):
        run = [value for _, value in numbered]
        found += [f"{run[0]}-{run[-1]}"] if len(run) >= _A_RUN else map(str, run)
    return found
