"""Tables with one partition per day: partitions are created ahead of time and dropped whole."""

from typing import Literal, TypeAlias

from sereno.database.statement import Operation, Statement, queries

PartitionedTable: TypeAlias = Literal["history", "attempts", "fires"]

# The SQL file with the partition queries of each table.
_QUERY_FILES: dict[PartitionedTable, str] = {
    "history": "jobs/history",
    "attempts": "jobs/attempt_partitions",
    "fires": "schedules/fires",
}


def make_partitions(table: PartitionedTable) -> Operation[int]:
    """Create the partitions of today and of the next seven days; return how many were new."""
    rows = yield Statement(queries(_QUERY_FILES[table])["make_partitions"])
    return sum(1 for row in rows if row[0])


def old_partitions(table: PartitionedTable, days: int) -> Operation[list[str]]:
    """Return the names of the partitions whose day is older than `days`."""
    rows = yield Statement(queries(_QUERY_FILES[table])["old_partitions"], {"days": days})
    return [row[0] for row in rows]


def drop_partition(table: PartitionedTable, name: str) -> Operation[None]:
    yield Statement(queries(_QUERY_FILES[table])["drop_partition"], {"name": name})
