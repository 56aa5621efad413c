"""Who leads, and what the leader sees."""

from typing import NamedTuple

from sereno.database.statement import Operation, Statement, queries

_sql = queries("schedules/leader_lease")


class LeaderLease(NamedTuple):
    """The fence of a leader; None: somebody else leads. `overdue`: and does not keep up."""

    fence: int | None
    zones: str | None
    overdue: bool


def lead(holder: str, lease: float, overdue: float) -> Operation[LeaderLease]:
    rows = yield Statement(_sql["lead"], {"holder": holder, "lease": lease, "overdue": overdue})
    return LeaderLease(*rows[0])


class DueSchedules(NamedTuple):
    """What the leader sees. `next_due`: seconds; `awaits`: something waits for a run to end."""

    leads: bool
    next_due: float | None
    ends: bool
    free: bool
    awaits: bool


class LastTick(NamedTuple):
    """When the last tick was, by the database's clock, how long it took, and how many fires it made."""

    at: int | None = None
    seconds: float | None = None
    fires: int | None = None


def look(
    holder: str, fence: int, *, lease: float, rest: float, floor: int, ended: int, everything: bool, last: LastTick
) -> Operation[DueSchedules]:
    """From these floors; `everything`: also what has no floor."""
    rows = yield Statement(
        _sql["look"],
        {
            "holder": holder,
            "fence": fence,
            "lease": lease,
            "rest": rest,
            "floor": floor,
            "ended": ended,
            "everything": everything,
            "ticked": last.at,
            "seconds": last.seconds,
            "fires": last.fires,
        },
    )
    return DueSchedules(*rows[0])


def note_error(holder: str, fence: int, error: str) -> Operation[None]:
    yield Statement(_sql["note_error"], {"holder": holder, "fence": fence, "error": error[:2000]})


def resign(holder: str) -> Operation[None]:
    yield Statement(_sql["resign"], {"holder": holder})


def set_zones(fence: int, version: str) -> Operation[None]:
    yield Statement(_sql["set_zones"], {"zones": version, "fence": fence})
