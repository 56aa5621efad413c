"""SQL queries over archived rows. For admins only: files hold the rows of all tenants."""

import asyncio
from http import HTTPStatus
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field

from sereno.access import audit
from sereno.access.masking import without_secrets
from sereno.archive import files as archive_files
from sereno.archive.query import (
    LONGEST_QUESTION,
    MOST_ROWS,
    MOST_SECONDS,
    ArchiveQuestion,
    QueryResult,
    QueryTimeout,
    ask,
)
from sereno.archive.rows import TimeSpan
from sereno.errors import ArchiveUnavailable, InvalidArguments
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.settings import DISK

# Characters of a query that the audit stores.
AUDITED_CHARS = 2000


class QueryBody(BaseModel):
    """One `select` for DuckDB. `from`, `to`: skip the files of other times. `rows`, `seconds`: limits."""

    sql: Annotated[str, Field(min_length=1, max_length=LONGEST_QUESTION)]
    from_at: AwareDatetime | None = Field(None, alias="from")
    to_at: AwareDatetime | None = Field(None, alias="to")
    rows: int = Field(1000, ge=1, le=MOST_ROWS)
    seconds: float = Field(10.0, ge=1, le=MOST_SECONDS, allow_inf_nan=False)


def routes(context: ServerContext) -> Router:
    """`/archive/query`."""
    router = Router(context, "archive", remembers=False)
    running = asyncio.Lock()

    @router.operation("POST", "/archive/query", role="admin")
    async def query(body: QueryBody, who: Who) -> QueryResult:
        """Query archived rows in SQL: DuckDB reads verified files and nothing else. One at a time; it is audited.

        409 where `sereno[query]` is not installed on the server, 503 on a timeout.
        """
        if running.locked():
            raise HTTPError(HTTPStatus.CONFLICT, "another query of the archive is running: wait for its end")
        async with running:
            return await _query(context, body, who.actor)

    return router


async def _query(context: ServerContext, body: QueryBody, actor: str) -> QueryResult:
    settings = context.settings
    views = await context.read(archive_files.views(TimeSpan(None, body.from_at, body.to_at)))
    fields = {"sql": without_secrets(body.sql)[:AUDITED_CHARS], "from": body.from_at, "to": body.to_at}
    given = {name: value for name, value in fields.items() if value is not None}
    await context.change(audit.audit(actor, "archive.query", "archive", given))
    question = ArchiveQuestion(
        address=settings.archive_url or DISK,
        directory=settings.directory,
        views=views,
        sql=body.sql,
        rows=body.rows,
        seconds=body.seconds,
    )
    try:
        return await ask(question)
    except (QueryTimeout, ArchiveUnavailable) as error:
        raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
    except InvalidArguments as error:
        if views:
            raise
        text = f"the archive has no verified file of that time: {error}"
        raise HTTPError(HTTPStatus.NOT_FOUND, text) from None
