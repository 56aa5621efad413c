"""Limits and weights: list, change, close and open them while workers run."""

from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import Path, Query, Response
from msgspec.structs import asdict
from pydantic import BaseModel, Field

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.jobs.limits import operations as limits
from sereno.jobs.limits import weights
from sereno.jobs.limits.limit import MOST_SLOTS
from sereno.jobs.limits.rows import BOUND, LimiterRow, LimitRow
from sereno.jobs.limits.weights import LEAST_WEIGHT, MOST_WEIGHT, WeightLine
from sereno.server.api.jobs.queues import NO_SUCH, Name
from sereno.server.api.paging import Page
from sereno.server.api.responses import json_response, page_model, response_model
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.text import NAME_LIMIT

T = TypeVar("T")

Number = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
# "1m", or seconds.
Length = Annotated[str, Field(max_length=50)] | Number
Key = Annotated[str, Field(max_length=NAME_LIMIT)]


class LimitLine(LimitRow, kw_only=True):
    """A limit as it is now, and in words (`says`); `declared`: as in the code. Counts go up to a thousand."""

    says: str


@dataclass
class LimitPage:
    """One limit and the most relevant of its keys: closed, waited for, in use."""

    limit: LimitLine
    keys: list[LimiterRow]


class LimitNumbersBody(BaseModel):
    """Either `slots`, jobs at once; or `rate`, jobs per `per`, with bursts of `burst`."""

    slots: int | None = Field(None, ge=0, le=MOST_SLOTS)
    rate: Number | None = None
    per: Length | None = None
    burst: Number | None = None
    note: str | None = Field(None, max_length=500)


class LimitBody(LimitNumbersBody):
    """`queue`: the limit applies to this whole queue, and is created if it does not exist."""

    queue: str | None = Field(None, max_length=NAME_LIMIT)


class CloseBody(BaseModel):
    """For how long. `key`: only this key; required for a limit with keys."""

    seconds: Length
    key: Key | None = None


class OpenBody(BaseModel):
    """`key`: only this key; without it, all closed keys."""

    key: Key | None = None


class TenantWeight(BaseModel):
    """Turns per turn of a key with weight 1, the default."""

    weight: float = Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT, allow_inf_nan=False)


@dataclass
class ResetResponse:
    """`limit`: as in the code; null if no code declares it, so that it is gone."""

    limit: LimitLine | None


@dataclass
class ClosedKey:
    """Until when nothing starts under the limit."""

    until: datetime


@dataclass
class OpenedKey:
    """How many keys were closed."""

    opened: int


@dataclass
class WeightResponse:
    """The weight of a fair key."""

    key: str
    weight: float


def routes(context: ServerContext) -> Router:
    """`/limits`, `/weights`."""
    router = Router(context, "limits")

    @router.operation("GET", "/limits", role="viewer", response_model=page_model(LimitLine))
    async def list_limits(
        pattern: Annotated[str | None, Query(max_length=NAME_LIMIT, description="A name; * matches all.")] = None,
        limit: Annotated[int, Query(ge=1, le=BOUND, description="Maximum number of items.")] = BOUND,
    ) -> Response:
        """Limits, how much of each is in use, and who changed it."""
        found = await context.read(limits.list_limits(pattern, most=limit))
        return json_response(Page([_line(row) for row in found]))

    @router.operation(
        "GET", "/limits/{name:path}", role="viewer", also=NO_SUCH, response_model=response_model(LimitPage)
    )
    async def show(
        name: Name,
        key: Annotated[str | None, Query(max_length=NAME_LIMIT, description="Only this key.")] = None,
        keys: Annotated[int, Query(ge=1, le=BOUND, description="Maximum number of keys.")] = 20,
    ) -> Response:
        """One limit, with its keys: closed ones first, then those that jobs wait for, then those in use."""
        found = await context.read(_known(limits.show(name, key=key, keys=keys)))
        return json_response(LimitPage(_line(found.limit), found.keys))

    _change(context, router)
    _close(context, router)
    _weigh(context, router)
    return router


def _change(context: ServerContext, router: Router) -> None:
    @router.operation(
        "PUT", "/limits/{name:path}", role="admin", also=NO_SUCH, response_model=response_model(LimitLine)
    )
    async def change(name: Name, body: LimitBody, who: Who) -> Response:
        """Change the numbers of a limit. They apply at once and everywhere, until a reset; running jobs continue."""
        row = await context.change(_known(limits.change(name, **body.model_dump(), actor=who.actor)))
        return json_response(_line(row))

    @router.operation(
        "PUT", "/queues/{name:path}/limit", role="admin", also=NO_SUCH, response_model=response_model(LimitLine)
    )
    async def change_queue(name: Name, body: LimitNumbersBody, who: Who) -> Response:
        """Change or create the limit of a whole queue."""
        row = await context.change(limits.change(queue=name, **body.model_dump(), actor=who.actor))
        return json_response(_line(row))

    @router.operation(
        "POST", "/limits/{name:path}/reset", role="admin", also=NO_SUCH, response_model=response_model(ResetResponse)
    )
    async def reset(name: Name, who: Who) -> Response:
        """Return to the limit as declared in the code. A limit that no code declares is removed."""
        row = await context.change(_known(limits.reset(name, actor=who.actor)))
        return json_response(ResetResponse(None if row is None else _line(row)))


def _close(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/limits/{name:path}/close", role="operator", also=NO_SUCH)
    async def close(name: Name, body: CloseBody, who: Who) -> ClosedKey:
        """Start no jobs under the limit for a while. Running jobs continue; a longer closure stays."""
        return ClosedKey(
            await context.change(_known(limits.close(name, body.seconds, key=body.key, actor=who.actor))),
        )

    @router.operation("POST", "/limits/{name:path}/open", role="operator", also=NO_SUCH)
    async def reopen(name: Name, who: Who, body: OpenBody | None = None) -> OpenedKey:
        """Open what was closed."""
        key = None if body is None else body.key
        return OpenedKey(await context.change(_known(limits.reopen(name, key=key, actor=who.actor))))


def _weigh(context: ServerContext, router: Router) -> None:
    @router.operation("GET", "/weights", role="viewer")
    async def list_weights() -> Page[WeightLine]:
        """Fair keys with a weight other than 1, heaviest first."""
        return Page(await context.read(weights.list_weights()))

    @router.operation("PUT", "/weights/{key:path}", role="admin", also=NO_SUCH)
    async def weigh(key: Annotated[str, Path(max_length=NAME_LIMIT)], body: TenantWeight, who: Who) -> WeightResponse:
        """Give a fair key more turns than others, or fewer."""
        await context.change(weights.weigh(key, body.weight, actor=who.actor))
        return WeightResponse(key, body.weight)


def _known(operation: Operation[T]) -> Operation[T]:
    """404 for an unknown limit; the message names the known ones."""
    try:
        return (yield from operation)
    except ConfigurationError as error:
        raise HTTPError(HTTPStatus.NOT_FOUND, str(error)) from None


def _line(row: LimitRow) -> LimitLine:
    return LimitLine(says=limits.in_words(row.numbers), **asdict(row))
