"""Errors as problem documents (RFC 9457): a type, a title, a status, and a sentence that says what to do."""

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
from sereno.database.statement_errors import MissingPrivilegeError, MissingSchemaError
from sereno.errors import SerenoError
from sereno.server.shared.http_error import HTTPError

MEDIA_TYPE = "application/problem+json"
# SQLSTATE of a missing table, function, column or schema, and of a read-only server.
UNREADY = frozenset({"42P01", "42883", "42703", "3F000", "25006"})

STATUSES: tuple[tuple[type[SerenoError], HTTPStatus], ...] = (
    (errors.JobNotFound, HTTPStatus.NOT_FOUND),
    (errors.GroupNotFound, HTTPStatus.NOT_FOUND),
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


def problem_response(
    status: int,
    detail: str | None,
    *,
    found: list[dict[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    content = Problem(title=HTTPStatus(status).phrase, status=status, detail=_clean(detail), errors=found)
    return JSONResponse(
        content.model_dump(exclude_none=True), status, headers=dict(headers or {}), media_type=MEDIA_TYPE
    )


def responses(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an operation for the OpenAPI document."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {int(status): {"description": status.phrase, "content": content} for status in statuses}


def install(app: Starlette) -> None:
    """Turn every exception into a problem document that shows no internals."""

    async def declined(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPError)
        return problem_response(error.status, error.detail, headers=error.headers)

    async def refused(_: Request, error: Exception) -> Response:
        status = next(status for kind, status in STATUSES if isinstance(error, kind))
        headers = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
        return problem_response(status, str(error), headers=headers)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = [{"where": _clean(_where(each["loc"])), "message": _clean(each["msg"])} for each in error.errors()[:20]]
        detail = "; ".join(f"{each['where']}: {each['message']}" for each in found[:3])
        return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, detail, found=found)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        # FastAPI raises 400 for a body that it cannot parse.
        status = HTTPStatus.UNPROCESSABLE_ENTITY if error.status_code == HTTPStatus.BAD_REQUEST else error.status_code
        return problem_response(status, str(error.detail), headers=error.headers)

    async def busy(_: Request, error: Exception) -> Response:
        is_slow = isinstance(error, psycopg.errors.QueryCanceled)
        detail = "the query takes longer than 2 s: narrow it down" if is_slow else "the database did not respond"
        return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "1"})

    async def bad_data(_: Request, __: Exception) -> Response:
        return problem_response(
            HTTPStatus.UNPROCESSABLE_ENTITY, "a value in the request is one that PostgreSQL cannot hold"
        )

    async def unready(_: Request, error: Exception) -> Response:
        if getattr(error, "sqlstate", None) not in UNREADY:
            raise error
        detail = "the database has no sereno schema, an older one, or is read-only: see sereno doctor"
        return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "1"})

    for kind, handler in (
        (HTTPError, declined),
        (SerenoError, refused),
        (RequestValidationError, invalid),
        (HTTPException, http),
        (psycopg.OperationalError, busy),
        (TimeoutError, busy),
        (psycopg.DataError, bad_data),
        (psycopg.errors.CheckViolation, bad_data),
        (MissingPrivilegeError, not_granted),
        (psycopg.errors.InsufficientPrivilege, not_granted),
        (MissingSchemaError, unready),
        (psycopg.ProgrammingError, unready),
        (psycopg.InternalError, unready),
        (UnicodeEncodeError, bad_data),
    ):
        app.add_exception_handler(kind, handler)


async def not_granted(_: Request, __: Exception) -> Response:
    detail = "the server's database role lacks a privilege for this: see `sereno migrate --roles print`"
    return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, detail)


def _clean(text: str | None) -> str | None:
    """Replace lone surrogates, which JSON cannot carry; a request may contain one, and the error repeats it."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def _where(place: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in place)
