"""Pause and resume queues, tasks and tenants."""

from difflib import get_close_matches

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import Refused
from sereno.jobs.rows import PauseKind

_sql = queries("jobs/pauses")

# The newest jobs and figures in which names are looked up.
WINDOW = 10_000


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


def check_known(kind: PauseKind, name: str) -> Operation[None]:
    """Raise Refused if there is no such queue, task or tenant: the name is probably misspelt."""
    rows = yield Statement(_sql[f"known_{kind}"], {"name": name, "window": WINDOW})
    known = rows[0][0]
    if name in known:
        return
    near = get_close_matches(name, known, 1)
    hint = f": did you mean {near[0]}? " if near else "; "
    raise Refused(f"there is no {kind} {name!r:.80}{hint}--force pauses one that does not exist yet")


def resume(kind: PauseKind, name: str, *, actor: str | None = None, by_tenant: bool = False) -> Operation[bool]:
    """Start its jobs again. Return False if it was not paused. `by_tenant`: only if that tenant's users paused it."""
    if not (yield Statement(_sql["resume"], {"kind": kind, "name": name, "by_tenant": by_tenant})):
        return False
    yield from audit.audit(actor or default_actor(), f"{kind}.resume", f"{kind} {name}", {})
    return True
