"""The lease of the leading scheduler, and the leader's query for due work."""

from typing import NamedTuple

from sereno.database.statement import Operation, Statement, queries

_sql = queries("schedules/leader_lease")


class LeaderLease(NamedTuple):
    """The leader's fence; None: another scheduler leads, and `overdue` tells whether it has fallen behind."""

    fence: int | None
    zones: str | None
    overdue: bool


def lead(holder: str, lease: float, overdue: float) -> Operation[LeaderLease]:
    rows = yield Statement(_sql["lead"], {"holder": holder, "lease": lease, "overdue": overdue})
    return LeaderLease(*rows[0])


class DueSchedules(NamedTuple):
    """The leader's view. `next_due`: in seconds; `awaits`: a schedule waits for a run to end."""

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


def due(
    holder: str, fence: int, *, lease: float, rest: float, floor: int, ended: int, everything: bool, last: LastTick
) -> Operation[DueSchedules]:
    """Renew the lease and query what is due, from these floors; `everything` adds the scans that have no floor."""
    rows = yield Statement(
        _sql["due"],
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
