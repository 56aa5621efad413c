"""The audit log: who changed what."""

from collections.abc import Mapping
from typing import Any

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries

_sql = queries("access/audit")


def audit(actor: str, action: str, subject: str, detail: Mapping[str, Any]) -> Operation[None]:
    """Write one line of the audit, in the transaction of the change."""
    yield Statement(
        _sql["audit"],
        {"actor": actor, "action": action, "subject": subject, "detail": encoder.encode(detail).decode()},
    )
