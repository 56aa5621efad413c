"""Pause and resume queues, tasks and tenants."""

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.rows import PauseKind

_sql = queries("jobs/pauses")


def pause(
    kind: PauseKind, name: str, *, note: str | None = None, actor: str | None = None, by_tenant: bool = False
) -> Operation[bool]:
    """Stop starting its jobs; running jobs continue. Return False if it was paused already.

    `by_tenant`: a user of the paused tenant pauses it, and may also resume it.
    """
    who = actor or default_actor()
    given = {"kind": kind, "name": name, "actor": who, "note": note, "by_tenant": by_tenant}
    if not (yield Statement(_sql["pause"], given)):
        return False
    yield from audit.audit(who, f"{kind}.pause", f"{kind} {name}", {"note": note})
    return True


def resume(kind: PauseKind, name: str, *, actor: str | None = None, by_tenant: bool = False) -> Operation[bool]:
    """Start its jobs again. Return False if it was not paused. `by_tenant`: only if that tenant's users paused it."""
    if not (yield Statement(_sql["resume"], {"kind": kind, "name": name, "by_tenant": by_tenant})):
        return False
    yield from audit.audit(actor or default_actor(), f"{kind}.resume", f"{kind} {name}", {})
    return True
