"""The API process: it takes leads and serves metrics. With JOB_RUNNER_ENABLED=true it runs jobs as well.

python -m separate_worker
"""

import hmac
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from pydantic import BaseModel, StringConstraints

from separate_worker.app import add_lead, app, connect, hash_of, settings
from separate_worker.metrics import Metrics, exposition, metrics
from sereno.server import asgi

Reference = Annotated[str, StringConstraints(pattern=r"^[\w.:-]{1,100}$")]
Email = Annotated[str, StringConstraints(pattern=r"^[^\s@]{1,64}@[^\s@]{1,190}$")]
dashboard = asgi(app)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Run jobs between start and stop if this is a monolith; at the stop, running jobs finish or are released."""
    if settings.runs_jobs:
        async with app.working():
            yield
    else:
        yield
    await dashboard.end()
    await app.aclose()


api = FastAPI(title="separate_worker", lifespan=lifespan)
api.mount("/sereno", dashboard)


class NewLead(BaseModel):
    """`reference`: the caller's own name for it."""

    reference: Reference
    email: Email


class Accepted(BaseModel):
    """`job`: null if the lead existed already; then no job is enqueued."""

    job: int | None


async def organisation(authorization: Annotated[str, Header()] = "") -> str:
    """Return the organisation of the key."""
    async with await connect() as connection:
        found = await connection.execute(
            "select id from separate_worker.organisations where key_hash = %s",
            [hash_of(authorization.removeprefix("Bearer "))],
        )
        row = await found.fetchone()
    if row is None:
        raise HTTPException(401, "send 'Authorization: Bearer' with the key of your organisation")
    return str(row[0])


def may_read_metrics(request: Request, authorization: Annotated[str, Header()] = "") -> None:
    """Allow requests with the metrics token; if none is set, requests from loopback."""
    if settings.metrics_token is not None:
        allowed = hmac.compare_digest(authorization.encode(), f"Bearer {settings.metrics_token}".encode())
    else:
        allowed = request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    if not allowed:
        raise HTTPException(401, "send 'Authorization: Bearer' with the value of SEPARATE_WORKER_METRICS_TOKEN")


@api.post("/api/leads", status_code=202)
async def post_lead(lead: NewLead, whose: Annotated[str, Depends(organisation)]) -> Accepted:
    """Store the lead and the job that passes it on, then return 202."""
    async with await connect() as connection:
        job = await add_lead(connection, whose, lead.reference, lead.email)
    return Accepted(job=job.id if job else None)


@api.get("/api/integrations/jobs/metrics", dependencies=[Depends(may_read_metrics)])
async def show_metrics() -> Metrics:
    """Return the leading scheduler, the last cycle, the live workers and the waiting jobs."""
    return await metrics()


@api.get("/metrics", dependencies=[Depends(may_read_metrics)])
async def prometheus() -> Response:
    """Return the same figures for Prometheus."""
    return Response(await exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")
