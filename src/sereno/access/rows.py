"""Rows of API tokens and of the audit."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sereno.access.identity import Role


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token in a list, without its secret."""

    id: int
    name: str
    role: Role
    tenant: str | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line of the audit."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any]
    login: str
