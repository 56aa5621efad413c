"""The API process: it takes leads and webhooks, and serves metrics. With JOB_RUNNER_ENABLED=true it runs jobs as well.

python -m separate_worker
"""

import asyncio
import hmac
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Path, Request, Response
from pydantic import BaseModel, StringConstraints

from separate_worker.app import app
from separate_worker.leads import EMAIL, REFERENCE, NewLead, add_lead, hash_of
from separate_worker.metrics import Metrics, exposition, metrics
from separate_worker.queues import connect, settings
from separate_worker.webhooks import (
    LARGEST,
    MESSAGE_ID,
    InvalidMessageError,
    find_integration,
    is_signed,
    store_message,
)
from sereno.server import asgi

# Seconds that a sender of a webhook may take for its body.
BODY_TIMEOUT = 10
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


class LeadBody(BaseModel):
    """`reference`: the caller's own name for it."""

    reference: Annotated[str, StringConstraints(pattern=REFERENCE)]
    email: Annotated[str, StringConstraints(pattern=EMAIL)]


class Accepted(BaseModel):
    """`job`: null if it was received before; then no job is enqueued."""

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
async def post_lead(lead: LeadBody, whose: Annotated[str, Depends(organisation)]) -> Accepted:
    """Store the lead and the job that passes it on, then return 202."""
    async with await connect() as connection:
        job = await add_lead(connection, whose, NewLead(lead.reference, lead.email))
    return Accepted(job=job.id if job else None)


async def whole_body(request: Request) -> bytes:
    """Return the body; refuse one that is too large before it is read, or that arrives too slowly."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LARGEST:
                    raise HTTPException(413, f"a message has at most {LARGEST:,} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {BODY_TIMEOUT} s") from None
    return bytes(body)


@api.post("/webhooks/{integration}", status_code=202)
async def post_webhook(
    request: Request,
    integration: Annotated[str, Path(max_length=100)],
    body: Annotated[bytes, Depends(whole_body)],
    webhook_id: Annotated[str, Header()] = "",
) -> Accepted:
    """Store a signed message (Standard Webhooks) and the job that handles it. A repeat gets the same status."""
    refused = HTTPException(401, "the message is not signed with the secret of this integration, or not recently")
    if not MESSAGE_ID.fullmatch(webhook_id) or "\x00" in integration:
        raise refused
    async with await connect() as connection:
        known = await find_integration(connection, integration)
        if known is None or not is_signed(request.headers, body, known[1]):
            raise refused
        try:
            job = await store_message(connection, integration, known[0], webhook_id, body)
        except InvalidMessageError:
            raise HTTPException(422, 'send JSON such as {"type": "lead.closed", "data": {}}') from None
    return Accepted(job=job.id if job else None)


@api.get("/api/integrations/jobs/metrics", dependencies=[Depends(may_read_metrics)])
async def show_metrics() -> Metrics:
    """Return the lock, the last cycle, the live workers and the waiting jobs."""
    return await metrics()


@api.get("/metrics", dependencies=[Depends(may_read_metrics)])
async def prometheus() -> Response:
    """Return the same figures for Prometheus."""
    return Response(await exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")
