"""What a person may change, and the record of it."""

from collections.abc import Mapping
from typing import Any, Literal

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.job_filter import JobFilter

_sql = queries("access/audit")

PauseKind = Literal["queue", "task", "tenant"]

# A bulk change takes this many jobs in one transaction.
BATCH = 1000
# A dry run looks at no more than this many.
TALLY_BOUND = 1_000_000


def audit(actor: str, action: str, subject: str, detail: Mapping[str, Any]) -> Operation[None]:
    """One line about who did what; part of the transaction that does it."""
    yield Statement(
        _sql["audit"],
        {"actor": actor, "action": action, "subject": subject, "detail": encoder.encode(detail).decode()},
    )


def pause(kind: PauseKind, name: str, actor: str, note: str | None, *, by_tenant: bool = False) -> Operation[bool]:
    """False when it was paused already. `by_tenant`: by somebody of the tenant that is paused."""
    given = {"kind": kind, "name": name, "actor": actor, "note": note, "by_tenant": by_tenant}
    rows = yield Statement(_sql["pause"], given)
    return bool(rows)


def resume(kind: PauseKind, name: str, *, by_tenant: bool = False) -> Operation[bool]:
    """False when it was not paused. `by_tenant`: only what that tenant's own people paused."""
    rows = yield Statement(_sql["resume"], {"kind": kind, "name": name, "by_tenant": by_tenant})
    return bool(rows)


def matching(wanted: JobFilter, after: int = 0, limit: int = BATCH) -> Operation[list[int]]:
    """Ids of the next jobs that the filter finds."""
    rows = yield Statement(_sql["matching"], wanted.params() | {"after": after, "limit": limit})
    return [row[0] for row in rows]


def tally(wanted: JobFilter) -> Operation[list[tuple[str, str, str | None, int]]]:
    """How many the filter finds by (task, queue, tenant)."""
    rows = yield Statement(_sql["tally"], wanted.params() | {"bound": TALLY_BOUND})
    return [(row[0], row[1], row[2], int(row[3])) for row in rows]
