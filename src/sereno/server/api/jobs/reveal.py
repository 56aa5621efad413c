"""The unmasked arguments of a job, for operators; every access is recorded in the audit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Path

from sereno.database.statement import Operation
from sereno.errors import JobNotFound
from sereno.jobs import operations as jobs
from sereno.jobs.queries.reveal import reveal
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import check_theirs

JobId = Annotated[int, Path(ge=0, lt=2**63)]


@dataclass
class RevealedArguments:
    """All arguments of one job."""

    arguments: Mapping[str, Any]


def routes(context: ServerContext) -> Router:
    """`/jobs/{job_id}/reveal`."""
    router = Router(context, "jobs", remembers=False)

    @router.operation("POST", "/jobs/{job_id}/reveal", role="operator", of_tenants=True)
    async def reveal_job(job_id: JobId, who: Who) -> RevealedArguments:
        """The unmasked arguments of a job. Elsewhere likely secrets are masked; the audit records each call."""

        def operation() -> Operation[Mapping[str, Any]]:
            try:
                found = yield from jobs.show(job_id)
            except JobNotFound:
                raise not_found(f"job {job_id}") from None
            check_theirs(who, found.job.tenant, f"job {job_id}")
            return (yield from reveal(found, actor=who.actor))

        return RevealedArguments(await context.change(operation()))

    return router
