"""Enqueue a job that calls a stored procedure, by the procedure's name."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from sereno.database.json_values import stored
from sereno.errors import InvalidArguments, Refused
from sereno.jobs import operations as jobs
from sereno.jobs.job import JobOptions
from sereno.procedures import operations as procedures
from sereno.procedures.open_arguments import calling_task
from sereno.procedures.operations import ProcedureOperations
from sereno.procedures.rows import AllowedProcedure
from sereno.server.api.procedures.procedures import Name, Target, or_not_allowed
from sereno.server.api.responses import check_storable
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.text import NAME_LIMIT


class RunBody(BaseModel):
    """`params`: by name. `tenant`: the tenant of the job."""

    params: Annotated[dict[str, Any], Field(max_length=1000)] = {}
    tenant: Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)] | None = None


@dataclass
class ProcedureJob:
    """The job that calls it; `GET /jobs/{id}` has its result."""

    job: int


def routes(context: ServerContext) -> Router:
    """`/procedures/{target}/{name}/run`."""
    router = Router(context, "procedures")

    @router.operation("POST", "/procedures/{target}/{name}/run", role="operator", status_code=201)
    async def run(target: Target, name: Name, who: Who, body: RunBody | None = None) -> ProcedureJob:
        """Enqueue a job that calls it. Refused at once when the parameters do not fit or the procedure has changed."""
        wanted = body or RunBody()
        check_storable("params", wanted.params)
        raw = stored(wanted.params, lambda why: InvalidArguments(f"params: {why}"))
        allowed = await context.read(or_not_allowed(name, procedures.find(target, name)))
        await ProcedureOperations(context.settings, lambda: context.database.url).check_params(allowed, wanted.params)
        job = context.make_job(_task(context, allowed), raw, JobOptions(tenant=wanted.tenant))
        (made,) = await context.change(jobs.enqueue([job], actor=who.actor))
        return ProcedureJob(made.id)

    return router


def _task(context: ServerContext, allowed: AllowedProcedure) -> str:
    task = calling_task(context.app.registry, allowed.target, allowed.signature.full_name)
    if task is not None:
        return task
    raise Refused(
        f"the server's application has no task that calls {allowed.name}: add app.procedure({allowed.name!r}), "
        "and name the application with `sereno server -a MODULE:APP`"
    )
