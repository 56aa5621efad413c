"""What somebody brought back from the archive leaves again when its time is over, if it is as it was archived."""

import logging

import psycopg

from sereno.archive import restore_store
from sereno.database.database import Database
from sereno.errors import first_line
from sereno.telemetry.log_events import emit


async def leave(database: Database, problems: list[str]) -> int:
    """How many rows left. A kind that cannot, because others refer to its rows, holds up no other."""
    gone = 0
    for kind in await database.arun(restore_store.leaving()):
        try:
            while left := await database.arun(restore_store.leave(kind)):
                gone += left.gone
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            words = f"{kind}: what was brought back cannot leave: {first_line(error)}"
            problems.append(words)
            emit(logging.ERROR, "archive.refused", words)
    return gone
