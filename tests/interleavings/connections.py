"""The connections of a search: to set up and check, to ask about locks, and one for each actor."""

from types import TracebackType
from typing import Any, Self

import psycopg

from sereno.database.connect import PLANNER
from tests.interleavings.tables import Tables
from tests.interleavings.verifier import Verifier

# Milliseconds after which PostgreSQL looks for a deadlock.
DEADLOCK_TIMEOUT = 20


class Connections:
    """Connections to a database that is migrated and empty, and used by nothing else. Scenarios share them.

    `plain`: to set up and check. `control`: to ask which statements wait. `snapshot`: to hold a snapshot.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._actors: dict[str, psycopg.Connection[Any]] = {}

    def __enter__(self) -> Self:
        self.plain = self._open()
        self._rows = self._open()
        self.snapshot = psycopg.connect(self._url)
        self.control = self._open()
        self.tables = Tables(self._rows)
        self.verifier = Verifier(self.plain)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._actors.values():
            connection.close()
        self.control.close()
        self.snapshot.close()
        self._rows.close()
        self.plain.close()

    def _open(self, **options: Any) -> psycopg.Connection[Any]:
        made = psycopg.connect(self._url, autocommit=True, **options)
        made.execute(PLANNER)
        made.execute("set timezone = 'UTC'")
        made.prepare_threshold = 0
        return made

    def actor(self, name: str) -> psycopg.Connection[Any]:
        """Return the connection of an actor, outside of a transaction."""
        if name not in self._actors:
            options = f"-c deadlock_timeout={DEADLOCK_TIMEOUT}"
            made = self._open(options=options)
            made.autocommit = False
            self._actors[name] = made
        return self._actors[name]
