"""What went wrong, as RFC 9457 says it: a type, a title, a status, and a sentence with its remedy."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import psycopg
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from sereno import errors
from sereno.errors import SerenoError
from sereno.server.shared.http_error import HTTPError

MEDIA_TYPE = "application/problem+json"
# SQLSTATE of a table, function, column or schema that is not there, and of a server that only reads.
UNREADY = frozenset({"42P01", "42883", "42703", "3F000", "25006"})

STATUSES: tuple[tuple[type[SerenoError], HTTPStatus], ...] = (
    (errors.JobNotFound, HTTPStatus.NOT_FOUND),
    (errors.DuplicateJob, HTTPStatus.CONFLICT),
    (errors.Refused, HTTPStatus.CONFLICT),
    (errors.RejectedCallback, HTTPStatus.FORBIDDEN),
    (errors.DatabaseUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.SchemaError, HTTPStatus.SERVICE_UNAVAILABLE),
    (SerenoError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


class Problem(BaseModel):
    """RFC 9457. `detail` says what happened, to what, and what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str | None = None
    errors: list[dict[str, Any]] | None = None


def answer(
    status: int,
    detail: str | None,
    *,
    found: list[dict[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    content = Problem(title=HTTPStatus(status).phrase, status=status, detail=_sayable(detail), errors=found)
    return JSONResponse(
        content.model_dump(exclude_none=True), status, headers=dict(headers or {}), media_type=MEDIA_TYPE
    )


def responses(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document: what else an operation may answer."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {int(status): {"description": status.phrase, "content": content} for status in statuses}


def install(app: Starlette) -> None:
    """Whatever is raised becomes a problem; nothing of the inside of the house is shown."""

    async def declined(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPError)
        return answer(error.status, error.detail, headers=error.headers)

    async def refused(_: Request, error: Exception) -> Response:
        status = next(status for kind, status in STATUSES if isinstance(error, kind))
        headers = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
        return answer(status, str(error), headers=headers)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = [
            {"where": _sayable(_where(each["loc"])), "message": _sayable(each["msg"])} for each in error.errors()[:20]
        ]
        words = "; ".join(f"{each['where']}: {each['message']}" for each in found[:3])
        return answer(HTTPStatus.UNPROCESSABLE_ENTITY, words, found=found)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        # A body that cannot be read, for a reason that FastAPI has no word for.
        status = HTTPStatus.UNPROCESSABLE_ENTITY if error.status_code == HTTPStatus.BAD_REQUEST else error.status_code
        return answer(status, str(error.detail), headers=error.headers)

    async def busy(_: Request, error: Exception) -> Response:
        is_slow = isinstance(error, psycopg.errors.QueryCanceled)
        words = "the question takes longer than 2 s: ask for less" if is_slow else "the database did not answer"
        return answer(HTTPStatus.SERVICE_UNAVAILABLE, words, headers={"Retry-After": "1"})

    async def bad_data(_: Request, __: Exception) -> Response:
        return answer(HTTPStatus.UNPROCESSABLE_ENTITY, "a value in the request is one that PostgreSQL cannot hold")

    async def not_granted(_: Request, __: Exception) -> Response:
        words = "the server's login at the database may not do this: sereno migrate --roles says which may"
        return answer(HTTPStatus.SERVICE_UNAVAILABLE, words)

    async def unready(_: Request, error: Exception) -> Response:
        if getattr(error, "sqlstate", None) not in UNREADY:
            raise error
        words = "the database has no schema of sereno, or an older one, or takes no changes: see sereno doctor"
        return answer(HTTPStatus.SERVICE_UNAVAILABLE, words, headers={"Retry-After": "1"})

    for kind, handler in (
        (HTTPError, declined),
        (SerenoError, refused),
        (RequestValidationError, invalid),
        (HTTPException, http),
        (psycopg.OperationalError, busy),
        (TimeoutError, busy),
        (psycopg.DataError, bad_data),
        (psycopg.errors.CheckViolation, bad_data),
        (psycopg.errors.InsufficientPrivilege, not_granted),
        (psycopg.ProgrammingError, unready),
        (psycopg.InternalError, unready),
        (UnicodeEncodeError, bad_data),
    ):
        app.add_exception_handler(kind, handler)


def _sayable(text: str | None) -> str | None:
    """As JSON can carry it: a lone surrogate in a request comes back in its error."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def _where(place: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in place)
