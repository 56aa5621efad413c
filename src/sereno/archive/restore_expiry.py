"""Removes restored rows when their time is over, if they have not changed since."""

import logging

import psycopg

from sereno.archive import restore_store
from sereno.database.database import Database
from sereno.errors import first_line
from sereno.telemetry.log_events import emit


async def remove_expired(database: Database, problems: list[str]) -> int:
    """Return how many rows were removed. An error in one kind, such as a foreign key, does not stop the others."""
    gone = 0
    for kind in await database.arun(restore_store.expired_kinds()):
        try:
            while left := await database.arun(restore_store.remove_expired(kind)):
                gone += left.gone
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            text = f"{kind}: restored rows cannot be removed: {first_line(error)}"
            problems.append(text)
            emit(logging.ERROR, "archive.refused", text)
    return gone
