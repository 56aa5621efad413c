"""The API process: it takes leads and answers questions. With JOB_RUNNER_ENABLED=true it runs jobs as well.

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
    """A monolith works between its start and its stop; on the way out it finishes what it has, or gives it back."""
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
    """`job`: null if the lead was here before; then nothing is done again."""

    job: int | None


async def organisation(authorization: Annotated[str, Header()] = "") -> str:
    """Whose key it is."""
    async with await connect() as connection:
        found = await connection.execute(
            "select id from separate_worker.organisations where key_hash = %s",
            [hash_of(authorization.removeprefix("Bearer "))],
        )
        row = await found.fetchone()
    if row is None:
        raise HTTPException(401, "Authorization: Bearer, and the key of your organisation")
    return str(row[0])


def may_look(request: Request, authorization: Annotated[str, Header()] = "") -> None:
    """Whoever has the token; without one, this machine alone."""
    if settings.metrics_token is not None:
        allowed = hmac.compare_digest(authorization.encode(), f"Bearer {settings.metrics_token}".encode())
    else:
        allowed = request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    if not allowed:
        raise HTTPException(401, "Authorization: Bearer, and the value of SEPARATE_WORKER_METRICS_TOKEN")


@api.post("/api/leads", status_code=202)
async def post_lead(lead: NewLead, whose: Annotated[str, Depends(organisation)]) -> Accepted:
    """Accepted means written: the lead, and the job that passes it on."""
    async with await connect() as connection:
        job = await add_lead(connection, whose, lead.reference, lead.email)
    return Accepted(job=job.id if job else None)


@api.get("/api/integrations/jobs/metrics", dependencies=[Depends(may_look)])
async def show_metrics() -> Metrics:
    """Who keeps time, how the last cycle went, who works, what waits."""
    return await metrics()


@api.get("/metrics", dependencies=[Depends(may_look)])
async def prometheus() -> Response:
    """The same for Prometheus."""
    return Response(await exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")
