"""Moves attempts of jobs that still exist out of daily partitions that are about to be dropped."""

from datetime import UTC, datetime, timedelta

from sereno.database.statement import Operation, Statement, queries

_sql = queries("jobs/attempt_partitions")

# Attempts per page. For each, every partition of history is searched for its job.
PAGE_SIZE = 2_000


def carry_attempts(name: str) -> Operation[bool]:
    """Move one page of a partition's attempts whose job still exists; return whether there is more."""
    begins = datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC)
    day = {"name": name, "begins": begins, "ends": begins + timedelta(days=1), "most": PAGE_SIZE}
    return bool((yield Statement(_sql["carry"], day))[0][0] >= PAGE_SIZE)


def carry_strays(days: int, *, archived: bool) -> Operation[bool]:
    """Move one page of old attempts out of the default partition; return whether there is more.

    `archived`: attempts without a job are moved too, not deleted, so that the archiver finds them.
    """
    bounds = {"days": days, "all": archived, "most": PAGE_SIZE}
    return bool((yield Statement(_sql["carry_strays"], bounds))[0][0] >= PAGE_SIZE)
