"""Facts about the archive's health: whether it keeps up, and whether files have failed."""

from dataclasses import dataclass
from datetime import datetime

from sereno.database.clock import clock
from sereno.database.statement import Operation, Statement, queries
from sereno.settings import A_DAY, Settings
from sereno.zones import moment

_sql = queries("archive/health")

# Upper bound of the count of failures.
COUNTED = 1000


@dataclass(frozen=True, slots=True)
class ArchiveHealth:
    """`failed`: files that could not be written or verified, and batches that could not be dropped.

    `since`, `error`: of the first of them. `behind`: seconds by which the oldest row is late to leave its table, or its
    batch is late to be exported; None if nothing waits.
    """

    is_on: bool
    failed: int
    since: datetime | None
    error: str | None
    behind: float | None


def oldest_rows() -> Operation[dict[str, datetime | None]]:
    """Return when the oldest row in the hot tables was made, by kind, and for `dead` jobs."""
    return {row[0]: row[1] for row in (yield Statement(_sql["oldest"]))}


def archive_health(settings: Settings) -> Operation[ArchiveHealth]:
    """Return the health. Old rows are found by an index or by partition names: the cost does not grow with a table."""
    failed, since, error = (yield Statement(_sql["failed"], {"most": COUNTED}))[0]
    any_batch, unverified = (yield Statement(_sql["batches"]))[0]
    late = yield from _overdue(settings)
    # If one of its files failed, the reason why a batch waits is already reported.
    late += [unverified] if unverified is not None and not failed else []
    is_on = settings.archive_url is not None or any_batch
    return ArchiveHealth(is_on, failed, since, error, max(late, default=None))


def _overdue(settings: Settings) -> Operation[list[float]]:
    """Return by how many seconds rows are late. Deliveries and events are not checked: the oldest may have to stay."""
    oldest = yield from oldest_rows()
    now = moment((yield from clock()))
    # A daily partition leaves when all of it is old.
    ages = {
        "jobs": (settings.keep_history_days + 1) * A_DAY if settings.archives("jobs") else None,
        "fires": (settings.keep_fires_days + 1) * A_DAY if settings.archives("fires") else None,
        "logs": settings.log_retention if settings.archives("logs") else None,
    }
    if settings.keep_dead_days is not None and settings.archives("jobs"):
        ages["dead"] = settings.keep_dead_days * A_DAY
    return [
        (now - since).total_seconds() - age
        for kind, age in ages.items()
        if age is not None and (since := oldest.get(kind)) is not None
    ]
