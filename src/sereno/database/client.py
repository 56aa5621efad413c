"""Base of the clients of an application: operations on its own connection or on the caller's."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from sereno.database.caller_connection import arun_on_caller, run_on_caller
from sereno.database.database import Database
from sereno.database.statement import Operation

T = TypeVar("T")


class DatabaseClient:
    """Runs operations; `conn`: the caller's connection, or None for one of the application."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _run(self, operation: Operation[T], conn: Any) -> T:
        if conn is None:
            return self._database.run(operation)
        settings = self._database.settings
        return run_on_caller(conn, operation, settings.schema, notify=settings.notify)

    def _arun(self, operation: Operation[T], conn: Any) -> Coroutine[Any, Any, T]:
        if conn is None:
            return self._database.arun(operation)
        settings = self._database.settings
        return arun_on_caller(conn, operation, settings.schema, notify=settings.notify)
