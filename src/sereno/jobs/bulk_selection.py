"""The jobs that a filter finds, for bulk changes."""

from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.filters import JobFilter

_sql = queries("jobs/bulk_selection")

# Jobs that a bulk change takes in one transaction.
BATCH = 1000
# Jobs that a dry run counts at most.
TALLY_BOUND = 1_000_000


def matching(wanted: JobFilter, after: int = 0, limit: int = BATCH) -> Operation[list[int]]:
    """Return the ids of the next jobs that the filter finds."""
    rows = yield Statement(_sql["matching"], wanted.params() | {"after": after, "limit": limit})
    return [row[0] for row in rows]


def tally(wanted: JobFilter) -> Operation[list[tuple[str, str, str | None, int]]]:
    """Return the number of jobs that the filter finds, by (task, queue, tenant)."""
    rows = yield Statement(_sql["tally"], wanted.params() | {"bound": TALLY_BOUND})
    return [(row[0], row[1], row[2], int(row[3])) for row in rows]
