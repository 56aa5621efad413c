"""Limits and weights: list, change, close and open them while workers run."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query
from msgspec.structs import asdict
from pydantic import BaseModel, Field

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.jobs.limits import operations as limits
from sereno.jobs.limits import weights
from sereno.jobs.limits.limit import MOST_SLOTS
from sereno.jobs.limits.store import BOUND, LimiterRow, LimitRow
from sereno.jobs.limits.weights import LEAST_WEIGHT, MOST_WEIGHT, WeightLine
from sereno.server.api.jobs.queues import NO_SUCH, Name
from sereno.server.api.paging import Page
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.text import NAME_LIMIT

T = TypeVar("T")

Number = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
# "1m", or seconds.
Length = Annotated[str, Field(max_length=50)] | Number
Key = Annotated[str, Field(max_length=NAME_LIMIT)]


@dataclass
class LimitLine:
    """A limit as it is now, and in words (`says`); `declared`: as in the code. Counts go up to a thousand."""

    name: str
    says: str
    kind: str
    slots: int | None
    units: float | None
    period: float | None
    burst: float | None
    queue: str | None
    key: str
    declared: Mapping[str, Any] | None
    declared_by: str | None
    overridden: bool
    note: str | None
    changed_by: str | None
    changed_at: datetime
    keys: int
    held: int
    waiting: int
    closed: int


@dataclass
class KeyLine:
    """One key of a limit: the jobs that hold a slot, its tokens, until when it is closed, how many ready jobs wait."""

    key: str
    held: list[int]
    taken: int
    tokens: float | None
    closed_until: datetime | None
    waiting: int
    used_at: datetime


@dataclass
class LimitPage:
    """One limit and the most relevant of its keys: closed, waited for, in use."""

    limit: LimitLine
    keys: list[KeyLine]


class LimitNumbersBody(BaseModel):
    """Either `slots`, jobs at once; or `rate`, jobs per `per`, with bursts of `burst`."""

    slots: int | None = Field(None, ge=0, le=MOST_SLOTS)
    rate: Number | None = None
    per: Length | None = None
    burst: Number | None = None
    note: str | None = Field(None, max_length=500)


class LimitNumbersAnswer(LimitNumbersBody):
    """`queue`: the limit applies to this whole queue, and is created if it does not exist."""

    queue: str | None = Field(None, max_length=NAME_LIMIT)


class CloseBody(BaseModel):
    """For how long. `key`: only this key; required for a limit with keys."""

    seconds: Length
    key: Key | None = None


class OpenBody(BaseModel):
    """`key`: only this key; without it, all closed keys."""

    key: Key | None = None


class Weight(BaseModel):
    """Turns per turn of a key with weight 1, the default."""

    weight: float = Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT, allow_inf_nan=False)


@dataclass
class ResetAnswer:
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
class WeightAnswer:
    """The weight of a fair key."""

    key: str
    weight: float


def routes(context: ServerContext) -> Router:
    """`/limits`, `/weights`."""
    router = Router(context, "limits")

    @router.operation("GET", "/limits", role="viewer")
    async def list_limits(
        pattern: Annotated[str | None, Query(max_length=NAME_LIMIT, description="A name; * matches all.")] = None,
        limit: Annotated[int, Query(ge=1, le=BOUND, description="Maximum number of items.")] = BOUND,
    ) -> Page[LimitLine]:
        """Limits, how much of each is in use, and who changed it."""
        return Page([_line(row) for row in await context.read(limits.list_limits(pattern, most=limit))])

    @router.operation("GET", "/limits/{name:path}", role="viewer", also=NO_SUCH)
    async def show(
        name: Name,
        key: Annotated[str | None, Query(max_length=NAME_LIMIT, description="Only this key.")] = None,
        keys: Annotated[int, Query(ge=1, le=BOUND, description="Maximum number of keys.")] = 20,
    ) -> LimitPage:
        """One limit, with its keys: closed ones first, then those that jobs wait for, then those in use."""
        found = await context.read(_known(limits.show(name, key=key, keys=keys)))
        return LimitPage(_line(found.limit), [_key_line(row) for row in found.keys])

    _change(context, router)
    _close(context, router)
    _weigh(context, router)
    return router


def _change(context: ServerContext, router: Router) -> None:
    @router.operation("PUT", "/limits/{name:path}", role="admin", also=NO_SUCH)
    async def change(name: Name, body: LimitNumbersAnswer, who: Who) -> LimitLine:
        """Change the numbers of a limit. They apply at once and everywhere, until a reset; running jobs continue."""
        return _line(await context.change(_known(limits.change(name, **body.model_dump(), actor=who.actor))))

    @router.operation("PUT", "/queues/{name:path}/limit", role="admin", also=NO_SUCH)
    async def change_queue(name: Name, body: LimitNumbersBody, who: Who) -> LimitLine:
        """Change or create the limit of a whole queue."""
        return _line(await context.change(limits.change(queue=name, **body.model_dump(), actor=who.actor)))

    @router.operation("POST", "/limits/{name:path}/reset", role="admin", also=NO_SUCH)
    async def reset(name: Name, who: Who) -> ResetAnswer:
        """Return to the limit as declared in the code. A limit that no code declares is removed."""
        row = await context.change(_known(limits.reset(name, actor=who.actor)))
        return ResetAnswer(None if row is None else _line(row))


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
    async def weigh(key: Annotated[str, Path(max_length=NAME_LIMIT)], body: Weight, who: Who) -> WeightAnswer:
        """Give a fair key more turns than others, or fewer."""
        await context.change(weights.weigh(key, body.weight, actor=who.actor))
        return WeightAnswer(key, body.weight)


def _known(operation: Operation[T]) -> Operation[T]:
    """404 for an unknown limit; the message names the known ones."""
    try:
        return (yield from operation)
    except ConfigurationError as error:
        raise HTTPError(HTTPStatus.NOT_FOUND, str(error)) from None


def _line(row: LimitRow) -> LimitLine:
    return LimitLine(says=limits.in_words(row.numbers), **asdict(row))


def _key_line(row: LimiterRow) -> KeyLine:
    return KeyLine(**asdict(row))
