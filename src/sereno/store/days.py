"""What is kept by the day: partitions are made ahead of time, and dropped whole. One noun is as the other."""

from typing import Literal, TypeAlias

from sereno.store.statement import Operation, Statement, queries

Kept: TypeAlias = Literal["history", "fires"]


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
