"""The audit, pauses, and the jobs that a filter finds for a bulk change."""

from collections.abc import Mapping
from typing import Any, Literal

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.job_filter import JobFilter

_sql = queries("access/audit")

PauseKind = Literal["queue", "task", "tenant"]

# Jobs that a bulk change processes in one transaction.
BATCH = 1000
# Jobs that a dry run counts at most.
TALLY_BOUND = 1_000_000


def audit(actor: str, action: str, subject: str, detail: Mapping[str, Any]) -> Operation[None]:
    """Write one line of the audit, in the transaction of the change."""
    yield Statement(
        _sql["audit"],
        {"actor": actor, "action": action, "subject": subject, "detail": encoder.encode(detail).decode()},
    )


def pause(kind: PauseKind, name: str, actor: str, note: str | None, *, by_tenant: bool = False) -> Operation[bool]:
    """Pause; return False if it was paused already. `by_tenant`: by a user of the tenant that is paused."""
    given = {"kind": kind, "name": name, "actor": actor, "note": note, "by_tenant": by_tenant}
    rows = yield Statement(_sql["pause"], given)
    return bool(rows)


def resume(kind: PauseKind, name: str, *, by_tenant: bool = False) -> Operation[bool]:
    """Resume; return False if it was not paused. `by_tenant`: only if that tenant's own users paused it."""
    rows = yield Statement(_sql["resume"], {"kind": kind, "name": name, "by_tenant": by_tenant})
    return bool(rows)


def matching(wanted: JobFilter, after: int = 0, limit: int = BATCH) -> Operation[list[int]]:
    """Return the ids of the next jobs that the filter finds."""
    rows = yield Statement(_sql["matching"], wanted.params() | {"after": after, "limit": limit})
    return [row[0] for row in rows]


def tally(wanted: JobFilter) -> Operation[list[tuple[str, str, str | None, int]]]:
    """Return the number of jobs that the filter finds, by (task, queue, tenant)."""
    rows = yield Statement(_sql["tally"], wanted.params() | {"bound": TALLY_BOUND})
    return [(row[0], row[1], row[2], int(row[3])) for row in rows]
