"""Rows of allowed procedures and of their calls."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sereno.procedures.procedure import ProcedureSignature


@dataclass(frozen=True, slots=True)
class ProcedurePermission:
    """A procedure that jobs may call. `given`: parameters filled with a fact of the job. Timeouts in seconds."""

    target: str
    name: str
    given: dict[str, str]
    timeout: float
    lock_timeout: float
    note: str | None
    allowed_by: str
    allowed_at: datetime


@dataclass(frozen=True, slots=True)
class AllowedProcedure(ProcedurePermission):
    """A procedure with the signature that was allowed."""

    signature: ProcedureSignature


@dataclass(frozen=True, slots=True)
class LastRun:
    """The newest successful call and its job."""

    job_id: int
    attempt: int
    seconds: float
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class RunRow(LastRun):
    """A successful call and its result."""

    result: dict[str, Any]
