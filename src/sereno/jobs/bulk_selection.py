"""Selects and counts the jobs that match a filter, for bulk changes."""

from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.filters import JobFilter

_sql = queries("jobs/bulk_selection")

# Jobs that a bulk change changes in one transaction.
BATCH = 1000
# Jobs that a dry run counts at most.
TALLY_BOUND = 1_000_000


def matching(wanted: JobFilter, after: int = 0, limit: int = BATCH) -> Operation[list[int]]:
    """Return the ids of the next jobs that match the filter, after the id `after`."""
    rows = yield Statement(_sql["matching"], wanted.params() | {"after": after, "limit": limit})
    return [row[0] for row in rows]


def tally(wanted: JobFilter) -> Operation[list[tuple[str, str, str | None, int]]]:
    """Return the number of jobs that match the filter, by (task, queue, tenant)."""
    rows = yield Statement(_sql["tally"], wanted.params() | {"bound": TALLY_BOUND})
    return [(row[0], row[1], row[2], int(row[3])) for row in rows]
