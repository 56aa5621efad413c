"""Pause and resume queues, tasks and tenants."""

from typing import Literal

from sereno.database.statement import Operation, Statement, queries

_sql = queries("jobs/pauses")

PauseKind = Literal["queue", "task", "tenant"]


def pause(kind: PauseKind, name: str, actor: str, note: str | None, *, by_tenant: bool = False) -> Operation[bool]:
    """Pause; return False if it was paused already. `by_tenant`: by a user of the tenant that is paused."""
    given = {"kind": kind, "name": name, "actor": actor, "note": note, "by_tenant": by_tenant}
    rows = yield Statement(_sql["pause"], given)
    return bool(rows)


def resume(kind: PauseKind, name: str, *, by_tenant: bool = False) -> Operation[bool]:
    """Resume; return False if it was not paused. `by_tenant`: only if that tenant's own users paused it."""
    rows = yield Statement(_sql["resume"], {"kind": kind, "name": name, "by_tenant": by_tenant})
    return bool(rows)
