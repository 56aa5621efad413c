"""Long work in a module, for processes that are killed: each row of `rows` has one effect, with a few barriers."""

import asyncio
import os
import time
from typing import Any

from sereno import Context, Keyset, Sereno

app = Sereno()
ROWS = Keyset("select id, kills from rows where id > %(cursor)s order by id limit %(limit)s")


@app.task(timeout=None)
async def copies(ctx: Context) -> None:
    """Insert one effect for each row. A row with a barrier waits until no other transaction has locked that."""
    async for batch in ctx.iterate("rows", ROWS, commit_every=7).batches():
        async with batch.transaction() as connection:
            for row in batch:
                await connection.execute("insert into effects values (%s, %s)", [row["id"], ctx.attempt])
                await connection.execute("select from barriers where id = %s for share", [row["id"]])


@app.task(isolate=True, retry=0)
def isolated(ctx: Context) -> None:
    """Handle rows one by one; one row kills the process, and another one never ends, each once."""
    for row in ctx.run_iterate("rows", ROWS, commit_every=1):
        with app.database.connection() as connection:
            connection.execute("insert into effects values (%s, %s)", [row["id"], ctx.attempt])
            _once(connection, row)


def _once(connection: Any, row: dict[str, Any]) -> None:
    if connection.execute("select count(*) from effects where id = %s", [row["id"]]).fetchone()[0] > 1:
        return
    if row["kills"] == "process":
        os._exit(1)
    if row["kills"] == "time":
        time.sleep(60)


@app.task(timeout=None)
async def waits(ctx: Context) -> None:
    """Advance, and wait until the worker stops."""
    async for number in ctx.iterate("numbers", list(range(10)), commit_every=1):
        with app.database.connection() as connection:
            connection.execute("insert into effects values (%s, %s)", [number, ctx.attempt])
        while number == 5 and ctx.attempt == 1 and not ctx.stop_requested:  # noqa: ASYNC110 - a flag, not an event
            await asyncio.sleep(0.01)
