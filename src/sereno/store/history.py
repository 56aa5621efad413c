"""Finished jobs: partitions ahead of time, retention behind."""

from sereno.store.statement import Operation, Statement, queries

_sql = queries("history")


def make_partitions() -> Operation[int]:
    """Today and a week ahead; answers how many were new."""
    rows = yield Statement(_sql["make_partitions"])
    return sum(1 for row in rows if row[0])


def old_partitions(days: int) -> Operation[list[str]]:
    rows = yield Statement(_sql["old_partitions"], {"days": days})
    return [row[0] for row in rows]


def drop_partition(name: str) -> Operation[None]:
    yield Statement(_sql["drop_partition"], {"name": name})


def forget_dead(days: int) -> Operation[int]:
    """Dead letters older than this, at most a thousand a call."""
    rows = yield Statement(_sql["forget_dead"], {"days": days})
    return int(rows[0][0])
