"""What a night's job is about: a month of the books, or a day of sales. Pure functions of the account's calendar."""

from dataclasses import dataclass
from datetime import date, timedelta

from reconciliation import settings
from sereno.jobs.job import UniqueFor

A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Period:
    """`name`: the argument of the job. `turn`: its part of the unique key, which is stored for `remembered`."""

    name: str
    turn: str
    remembered: UniqueFor


def month(night: date) -> Period:
    """Return the month whose report a night fetches.

    `running`: the month of the day before, because the partner's file has everything up to that day. So each month is
    fetched daily, and for the last time, complete, on the first of the next one. `ended`: the month before, once.
    """
    if settings.MONTH == "ended":
        name = f"{night.replace(day=1) - A_DAY:%Y-%m}"
        return Period(name, name, "forever")
    name = f"{night - A_DAY:%Y-%m}"
    return Period(name, f"{name}:{night}", settings.REMEMBER)


def day(night: date) -> Period:
    """Return the day before, which is over."""
    name = (night - A_DAY).isoformat()
    return Period(name, name, settings.REMEMBER)
