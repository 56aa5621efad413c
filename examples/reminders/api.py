"""The administrative API of the original design, on the operations of sereno, with sereno's tokens and roles.

`python -m reminders` serves it; so does `uvicorn reminders.api:api`.
"""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

import psycopg
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.responses import JSONResponse
from psycopg.rows import dict_row
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from reminders.app import app
from reminders.settings import WORKER_ENABLED
from reminders.statuses import Status, filters
from sereno.access.identity import Principal, Role
from sereno.access.masking import masked
from sereno.contrib.asgi import lifespan
from sereno.database.statement import arun
from sereno.notifications.operations import list_deliveries, record_audit
from sereno.server import asgi
from sereno.server.shared.authenticator import Authenticator
from sereno.server.shared.http_error import HTTPError

# The last row that a page number reaches.
DEEPEST = 10_000
LARGEST_PAGE = 200

router = APIRouter(prefix="/api/notification-deliveries")


class Shape(BaseModel):
    """JSON with names such as `reminderId`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Delivery(Shape):
    """A delivery. `nextAttemptAt`: while it is QUEUED, or FAILED with attempts left."""

    id: int
    reminder_id: str
    channel: str
    status: Status
    attempts: int
    last_error: str | None
    next_attempt_at: datetime | None
    idempotency_key: str
    sent_at: datetime | None
    created_at: datetime
    updated_at: datetime


class DeliveryPage(Shape):
    """One page, newest first."""

    items: list[Delivery]
    page: int
    page_size: int
    has_next: bool


class Caller:
    """The owner of the request's token, who has this role. 401 without a valid token, 403 without the role."""

    def __init__(self, role: Role) -> None:
        self._role = role

    async def __call__(self, request: Request) -> Principal:
        authenticator: Authenticator = request.app.state.authenticator
        return await authenticator.check(request, self._role, of_tenants=False)


Viewer = Annotated[Principal, Depends(Caller("viewer"))]
Operator = Annotated[Principal, Depends(Caller("operator"))]


@router.get("")
async def list_page(
    who: Viewer,
    status: Status | None = None,
    channel: Annotated[str | None, Query(pattern=r"^\w{1,50}$")] = None,
    reminder_id: Annotated[str | None, Query(alias="reminderId", pattern=r"^[0-9]{1,18}$")] = None,
    page: Annotated[int, Query(ge=1)] = 1,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=LARGEST_PAGE)] = 20,
) -> DeliveryPage:
    """Deliveries with this status, channel and reminder, newest first."""
    end = page * page_size
    if end > DEEPEST:
        raise HTTPException(422, f"pages reach {DEEPEST:,} rows: filter by status, channel or reminderId")
    ids: list[int] = []
    for wanted in filters(status, channel, reminder_id):
        ids += [line.id for line in await app.database.arun(list_deliveries(wanted, limit=end + 1))]
    newest = sorted(ids, reverse=True)
    async with app.database.aconnection() as connection:
        items = await read(connection, newest[end - page_size : end], who)
    return DeliveryPage(items=items, page=page, page_size=page_size, has_next=len(newest) > end)


@router.post("/{number}/requeue")
async def requeue(number: Annotated[int, Path(ge=1, lt=2**63)], who: Operator) -> Delivery:
    """Send a delivery again, with fresh attempts: only one that is FAILED or DEAD_LETTER and not tried again anyway."""
    async with app.database.aconnection() as connection, connection.transaction():
        found = await read(connection, [number], who)
        if not found:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no delivery {number}")
        check_requeue(found[0])
        if not await app.notifications.arequeue([number], conn=connection):
            raise HTTPException(HTTPStatus.CONFLICT, f"delivery {number} was changed by another request")
        entry = record_audit("delivery.requeue", f"delivery {number}", {"ids": [number]}, actor=who.actor)
        await arun(connection, entry, app.settings.schema)
        (requeued,) = await read(connection, [number], who)
    return requeued


def check_requeue(delivery: Delivery) -> None:
    if delivery.status not in ("FAILED", "DEAD_LETTER"):
        why = f"only FAILED and DEAD_LETTER can be requeued, and delivery {delivery.id} is {delivery.status}"
        raise HTTPException(HTTPStatus.CONFLICT, why)
    if delivery.next_attempt_at is not None:
        # A second job for it would send it twice.
        at = delivery.next_attempt_at.astimezone(UTC)
        why = f"delivery {delivery.id} is queued already: the next attempt is at {at:%FT%TZ}"
        raise HTTPException(HTTPStatus.CONFLICT, why)


async def read(connection: psycopg.AsyncConnection[Any], ids: list[int], who: Principal) -> list[Delivery]:
    """Return deliveries in the words of the original design, newest first. Viewers see error messages masked."""
    cursor = connection.cursor(row_factory=dict_row)
    query = "select * from reminders.notification_deliveries where id = any(%s) order by id desc"
    rows = await (await cursor.execute(query, [ids])).fetchall()
    for row in rows:
        if row["last_error"] is not None and not who.may("operator"):
            row["last_error"] = masked(row["last_error"])
    return [Delivery(**row) for row in rows]


async def refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPError)
    return JSONResponse({"detail": error.detail}, error.status, error.headers)


def create() -> FastAPI:
    """Return the API, with the dashboard and the API of sereno under /sereno."""
    dashboard = asgi(app)
    api = FastAPI(title="reminders", lifespan=lifespan(app, work=WORKER_ENABLED, server=dashboard))
    api.state.authenticator = Authenticator(app.database)
    api.include_router(router)
    api.add_exception_handler(HTTPError, refused)
    api.mount("/sereno", dashboard)
    return api


api = create()
