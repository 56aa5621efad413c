"""Stored procedures that jobs may call: the list of allowed ones, their state, and their results."""

from dataclasses import dataclass, fields, replace
from http import HTTPStatus
from typing import Annotated, Literal, TypeVar

from fastapi import Path
from pydantic import BaseModel, Field

from sereno.access.masking import masked
from sereno.database.statement import Operation
from sereno.errors import Refused
from sereno.procedures import operations as procedures
from sereno.procedures.operations import ProcedureFinding, ProcedureOperations
from sereno.procedures.rows import AllowedProcedure, LastRun, ProcedurePermission, RunRow
from sereno.server.api.bounds import Name as ParameterName
from sereno.server.api.bounds import at_most
from sereno.server.api.jobs.limits import Length
from sereno.server.api.paging import Page
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found

T = TypeVar("T")

Target = Annotated[str, Path(max_length=60, description="`here`, or one of `procedure_targets`.")]
Name = Annotated[str, Path(max_length=600, description="`schema.name`, as in the database catalogue.")]
ERRORS = [HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT]


Fact = Literal["job", "attempt", "tenant", "trace", "planned_at"]


class AllowBody(BaseModel):
    """`params` and `kind`: which of several with this name. `given`: parameters filled in from the job."""

    params: str | None = Field(None, max_length=20_000)
    kind: Literal["function", "procedure"] | None = None
    given: Annotated[dict[ParameterName, Fact], at_most(1000)] = {}
    timeout: Length = procedures.DEFAULT_TIMEOUT
    lock_timeout: Length = procedures.DEFAULT_LOCK_TIMEOUT
    note: str | None = Field(None, max_length=procedures.LONGEST_NOTE)


@dataclass
class ParameterLine:
    """`mode`: in, out, inout, variadic or table."""

    name: str
    type: str
    mode: str
    has_default: bool


@dataclass(frozen=True, slots=True)
class ProcedureLine(ProcedurePermission):
    """An allowed procedure. Timeouts are in seconds. `definer`: with whose rights it runs, if not the caller's."""

    kind: str
    signature: str
    parameters: list[ParameterLine]
    returns: str | None
    definer: str | None
    last: LastRun | None = None


@dataclass
class ProcedureResponse:
    """An allowed procedure and the results of its newest calls. Likely secrets are masked."""

    procedure: ProcedureLine
    runs: list[RunRow]


def routes(context: ServerContext) -> Router:
    """`/procedures`."""
    router = Router(context, "procedures")

    def catalogues() -> ProcedureOperations:
        return ProcedureOperations(context.settings, lambda: context.database.url)

    @router.operation("GET", "/procedures", role="viewer")
    async def list_allowed() -> Page[ProcedureLine]:
        """Allowed procedures, each with its newest successful call."""
        return Page([_line(each.allowed, each.last) for each in await context.read(procedures.list_allowed())])

    @router.operation("GET", "/procedures/{target}/{name}", role="viewer")
    async def show(target: Target, name: Name) -> ProcedureResponse:
        """An allowed procedure and the results of its newest calls."""
        found = await context.read(or_not_allowed(name, procedures.show(target, name)))
        runs = [replace(each, result=masked(each.result)) for each in found.runs]
        return ProcedureResponse(_line(found.allowed, None), runs)

    @router.operation("PUT", "/procedures/{target}/{name}", role="admin", also=ERRORS)
    async def allow(target: Target, name: Name, body: AllowBody, who: Who) -> ProcedureLine:
        """Allow jobs to call it, for as long as its signature stays as it is now. A repeated call replaces it."""
        signature = await catalogues().resolve(target, name, params=body.params, kind=body.kind)
        made = await context.change(
            procedures.allow(
                target,
                signature,
                given=body.given,
                timeout=body.timeout,
                lock_timeout=body.lock_timeout,
                note=body.note,
                actor=who.actor,
            )
        )
        return _line(made, None)

    @router.operation("DELETE", "/procedures/{target}/{name}", role="admin", status_code=204)
    async def revoke(target: Target, name: Name, who: Who) -> None:
        """Remove a procedure from the list: jobs that call it end as dead."""
        await context.change(or_not_allowed(name, procedures.revoke(target, name, actor=who.actor)))

    @router.operation("POST", "/procedures/{target}/{name}/check", role="operator")
    async def check(target: Target, name: Name) -> ProcedureFinding:
        """Check whether the procedure in its database is still the one that was allowed."""
        return await catalogues().check(await context.read(or_not_allowed(name, procedures.find(target, name))))

    return router


def or_not_allowed(name: str, operation: Operation[T]) -> Operation[T]:
    """404 for a procedure that is not on the list."""
    try:
        return (yield from operation)
    except Refused:
        raise not_found(f"procedure {name:.200}") from None


def _line(allowed: AllowedProcedure, last: LastRun | None) -> ProcedureLine:
    signature = allowed.signature
    permission = {each.name: getattr(allowed, each.name) for each in fields(ProcedurePermission)}
    return ProcedureLine(
        **permission,
        kind=signature.kind,
        signature=str(signature),
        parameters=[ParameterLine(each.name, each.type, each.mode, each.has_default) for each in signature.parameters],
        returns=signature.returns,
        definer=signature.definer,
        last=last,
    )
