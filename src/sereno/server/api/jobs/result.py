"""The result of a job; a request may wait for it."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import Path, Query, Response

from sereno.access.masking import masked
from sereno.database.statement import Operation
from sereno.duration import seconds
from sereno.errors import ConfigurationError, InvalidArguments, JobNotFound
from sereno.jobs import finish_listener
from sereno.jobs import operations as jobs
from sereno.jobs.lifecycle import FINAL
from sereno.server.api.router import Router, Who
from sereno.server.shared.archived import gone
from sereno.server.shared.context import ServerContext
from sereno.server.shared.error_masking import sees_all
from sereno.server.shared.tenant_scope import check_theirs

JobId = Annotated[int, Path(ge=0, lt=2**63)]
# Seconds that a request may wait: proxies often end connections that are silent for longer.
LONGEST_WAIT = 60.0


@dataclass
class JobResult:
    """`result`: what the task returned, if the job succeeded and its task keeps results. `reason`: why it ended so."""

    id: int
    state: str
    result: Any
    reason: str | None
    error_type: str | None
    error_message: str | None


def routes(context: ServerContext) -> Router:
    """`/jobs/{job_id}/result`."""
    router = Router(context, "jobs")

    @router.operation(
        "GET",
        "/jobs/{job_id}/result",
        role="viewer",
        of_tenants=True,
        responses={HTTPStatus.ACCEPTED.value: {"model": JobResult, "description": "It has not finished yet."}},
    )
    async def result(
        job_id: JobId,
        who: Who,
        response: Response,
        wait: Annotated[
            str | None, Query(max_length=50, description='For how long to wait, such as "30s"; a minute at most.')
        ] = None,
    ) -> JobResult:
        """The result of a job, or its state with status 202 while it has not finished. Masked for viewers."""
        longest = _wait(wait)

        def operation() -> Operation[jobs.JobDetail]:
            try:
                found = yield from jobs.show(job_id)
            except JobNotFound:
                raise (yield from gone("job", job_id, who)) from None
            check_theirs(who, found.job.tenant, f"job {job_id}")
            return found

        row = (await context.read(operation())).job
        if row.state not in FINAL and longest:
            try:
                ended = (await finish_listener.wait_async(context.database, [job_id], longest))[0]
            except TimeoutError:
                row = (await context.read(operation())).job
            else:
                value = None if ended.result is None else msgspec.json.decode(ended.result)
                return _seen(
                    JobResult(job_id, ended.state, value, ended.reason, ended.error_type, ended.error_message), who
                )
        if row.state not in FINAL:
            response.status_code = HTTPStatus.ACCEPTED
        return _seen(JobResult(job_id, row.state, row.result, row.reason, row.error_type, row.error_message), who)

    return router


def _wait(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        return min(LONGEST_WAIT, seconds(text))
    except ConfigurationError as error:
        raise InvalidArguments(f"wait: {error}") from None


def _seen(found: JobResult, who: Who) -> JobResult:
    if not sees_all(who):
        found.result = masked(found.result)
    return found
