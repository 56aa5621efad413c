"""Questions to archived rows, in SQL. For admins alone: files hold the rows of all tenants."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, Field

from sereno.access import audit
from sereno.access.masking import without_secrets
from sereno.archive import files as archive_files
from sereno.archive.query import LONGEST_QUESTION, MOST_ROWS, MOST_SECONDS, Question, TooSlow, ask
from sereno.archive.restore_store import Span
from sereno.errors import ArchiveUnavailable, InvalidArguments
from sereno.server.api.router import Door, Who
from sereno.server.shared.context import House
from sereno.server.shared.http_error import Declined
from sereno.settings import DISK

# Of a question, as much as the audit keeps.
KEPT = 2000


class QueryBody(BaseModel):
    """One `select` of DuckDB's. `from`, `to`: spare it the files of other times. It gets so many rows and seconds."""

    sql: Annotated[str, Field(min_length=1, max_length=LONGEST_QUESTION)]
    from_at: AwareDatetime | None = Field(None, alias="from")
    to_at: AwareDatetime | None = Field(None, alias="to")
    rows: int = Field(1000, ge=1, le=MOST_ROWS)
    seconds: float = Field(10.0, ge=1, le=MOST_SECONDS, allow_inf_nan=False)


@dataclass
class QueryAnswer:
    """Each row as an object. `more`: there are others behind them, or all together would be too large."""

    rows: list[dict[str, Any]]
    more: bool


def rooms(house: House) -> Door:
    """`/archive/query`."""
    door = Door(house, "archive", remembers=False)
    at_work = asyncio.Lock()

    @door.at("POST", "/archive/query", role="admin")
    async def query(body: QueryBody, who: Who) -> QueryAnswer:
        """Ask archived rows, in SQL: DuckDB reads verified files and nothing else. One at a time; the audit has it.

        409 where `sereno[query]` is not installed beside the server, 503 when its time is over.
        """
        if at_work.locked():
            raise Declined(HTTPStatus.CONFLICT, "somebody asks the archive right now: wait for that answer")
        async with at_work:
            return await _asked(house, body, who.actor)

    return door


async def _asked(house: House, body: QueryBody, actor: str) -> QueryAnswer:
    settings = house.settings
    views = await house.read(archive_files.views(Span(None, body.from_at, body.to_at)))
    said = {"sql": without_secrets(body.sql)[:KEPT], "from": body.from_at, "to": body.to_at}
    given = {name: value for name, value in said.items() if value is not None}
    await house.change(audit.audit(actor, "archive.query", "archive", given))
    question = Question(
        address=settings.archive_url or DISK,
        directory=settings.directory,
        views=views,
        sql=body.sql,
        rows=body.rows,
        seconds=body.seconds,
    )
    try:
        found = await ask(question)
    except (TooSlow, ArchiveUnavailable) as error:
        raise Declined(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
    except InvalidArguments as error:
        if views:
            raise
        words = f"the archive has no verified file of that time: {error}"
        raise Declined(HTTPStatus.NOT_FOUND, words) from None
    return QueryAnswer(found.rows, found.more)
