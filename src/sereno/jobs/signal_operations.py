"""Operator actions on signals: send one, with a line in the audit log."""

from typing import Any

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.database.statement import Operation
from sereno.jobs import signals
from sereno.text import check_text


def new_signal(
    name: str,
    value: Any,
    limit: int,
    *,
    tenant: str | None = None,
    trace: str | None = None,
    actor: str | None = None,
) -> Operation[int]:
    """Check a signal now; return the operation that sends it, writes the actor to the audit log and returns its id.

    `limit`: bytes of the value as JSON. `trace`: of its cause; by default the current span.
    """
    signals.check_name(name)
    check_text("tenant", tenant)
    return _send(name, signals.encode_value(name, value, limit), tenant, trace, actor)


def _send(name: str, raw: bytes, tenant: str | None, trace: str | None, actor: str | None) -> Operation[int]:
    sent = yield from signals.send(name, raw, tenant, trace)
    detail = {"name": name, "tenant": tenant}
    yield from audit.audit(actor or default_actor(), "signal.send", f"signal {sent}", detail)
    return sent
