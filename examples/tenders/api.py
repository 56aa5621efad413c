"""The HTTP API of the app: phones register, change their preferences and leave.

    uvicorn tenders.api:api

The first registration of an installation returns its secret, once. Every other request about it needs the header
`Authorization: Bearer SECRET`. An app that lost its secret registers under a new id: its token moves there.
"""

import hmac
import json
from collections.abc import AsyncIterator
from typing import Annotated

import psycopg
from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError

from sereno import DatabaseUnavailable
from sereno.contrib.asgi import lifespan
from tenders import phones
from tenders.api_models import InstallationId, PhoneBody, PreferencesBody, Stored
from tenders.app import app
from tenders.body_limit import BodyLimit
from tenders.phones import Connection, Installation, Phone, TooManyRegistrations
from tenders.preferences import Preferences
from tenders.settings import setting

LARGEST_BODY = 16 * 1024
# Seconds until more registrations are accepted.
RETRY_AFTER = 60
# Mistakes of one request that are named.
MOST_MISTAKES = 20


async def connection() -> AsyncIterator[Connection]:
    """Yield a connection in a transaction, which is committed before the response is sent."""
    try:
        async with await psycopg.AsyncConnection.connect(app.url) as opened:
            yield opened
    except (psycopg.OperationalError, DatabaseUnavailable):
        raise HTTPException(503, "the database is not reachable", {"Retry-After": "5"}) from None


Transaction = Annotated[Connection, Depends(connection, scope="function")]


async def authenticated(
    installation: InstallationId, transaction: Transaction, authorization: Annotated[str, Header()] = ""
) -> Installation:
    """Return the installation whose secret was sent. Unknown ids and wrong secrets get the same response."""
    found = await phones.find(transaction, installation)
    sent = phones.hash_of(authorization.removeprefix("Bearer "))
    if found is None or not hmac.compare_digest(found.secret_hash or b"", sent):
        raise _refused()
    return found


Authenticated = Annotated[Installation, Depends(authenticated)]
api = FastAPI(title="tenders", lifespan=lifespan(app))
api.add_middleware(BodyLimit, most=LARGEST_BODY)
phone = APIRouter(prefix="/installations/{installation}")


@api.exception_handler(RequestValidationError)
async def invalid(_: Request, error: RequestValidationError) -> Response:
    """Say what is wrong without the input: not every text that JSON can express can be sent back."""
    details = [{"where": [str(step) for step in each["loc"]], "what": each["msg"]} for each in error.errors()]
    return Response(json.dumps({"detail": details[:MOST_MISTAKES]}), 422, media_type="application/json")


@phone.post("", status_code=201)
async def register(installation: InstallationId, body: PhoneBody, transaction: Transaction) -> Stored:
    """Register an installation and return its secret."""
    try:
        secret = await phones.create(transaction, installation, int(setting("REGISTRATIONS_PER_MINUTE")))
    except TooManyRegistrations:
        raise HTTPException(429, "too many registrations", {"Retry-After": str(RETRY_AFTER)}) from None
    if secret is None:
        raise HTTPException(409, "this installation is registered: use PUT with its secret, or register a new id")
    await phones.update(transaction, installation, _phone(body))
    await phones.prefer(transaction, installation, Preferences())
    return Stored(id=installation, phone=body, preferences=PreferencesBody(), secret=secret)


@phone.get("")
async def show(found: Authenticated) -> Stored:
    return Stored.of(found)


@phone.put("")
async def change(found: Authenticated, body: PhoneBody, transaction: Transaction) -> Stored:
    """Store a new token, version or language. The app calls this at each start: an invalid token is used again."""
    if not await phones.update(transaction, found.id, _phone(body)):
        raise _refused()
    return Stored(id=found.id, phone=body, preferences=Stored.of(found).preferences)


@phone.put("/preferences")
async def prefer(found: Authenticated, body: PreferencesBody, transaction: Transaction) -> PreferencesBody:
    """Replace the preferences."""
    if not await phones.prefer(transaction, found.id, body.as_preferences()):
        raise _refused()
    return body


@phone.delete("", status_code=204)
async def remove(found: Authenticated, transaction: Transaction) -> None:
    """Delete everything that is stored of the installation, except deliveries of the past."""
    await phones.remove(transaction, found.id)


api.include_router(phone)


@api.get("/livez")
async def livez() -> str:
    return "ok"


@api.get("/readyz")
async def readyz(transaction: Transaction) -> str:
    """Return 503 while the database is not reachable."""
    await transaction.execute("select 1 from tenders.installations limit 1")
    return "ok"


def _refused() -> HTTPException:
    return HTTPException(
        401, "send 'Authorization: Bearer' with the secret of this installation", {"WWW-Authenticate": "Bearer"}
    )


def _phone(body: PhoneBody) -> Phone:
    return Phone(**body.model_dump())
