"""What is kept by the day: partitions are made ahead of time, and dropped whole. One noun is as the other."""

from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from sereno.database.statement import Operation, Statement, queries

Kept: TypeAlias = Literal["history", "fires", "attempt_days"]

# Attempts that a page of `carry_attempts` looks at, each with a look at every day of history.
CARRIED = 2_000


def make_partitions(kept: Kept) -> Operation[int]:
    """Today and a week ahead; answers how many were new."""
    rows = yield Statement(queries(kept)["make_partitions"])
    return sum(1 for row in rows if row[0])


def old_partitions(kept: Kept, days: int) -> Operation[list[str]]:
    """Days that ended before the retention began."""
    rows = yield Statement(queries(kept)["old_partitions"], {"days": days})
    return [row[0] for row in rows]


def drop_partition(kept: Kept, name: str) -> Operation[None]:
    yield Statement(queries(kept)["drop_partition"], {"name": name})


def carry_attempts(name: str) -> Operation[bool]:
    """A page of what is in a day of attempts and belongs to a job that is still there; whether there is more."""
    begins = datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC)
    day = {"name": name, "begins": begins, "ends": begins + timedelta(days=1), "most": CARRIED}
    return bool((yield Statement(queries("attempt_days")["carry"], day))[0][0] >= CARRIED)


def carry_strays(days: int, *, archived: bool) -> Operation[bool]:
    """A page of old attempts that are in no day; whether there is more.

    `archived`: those without a job are not deleted, because the archive takes them.
    """
    bounds = {"days": days, "all": archived, "most": CARRIED}
    return bool((yield Statement(queries("attempt_days")["carry_strays"], bounds))[0][0] >= CARRIED)
