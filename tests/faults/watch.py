"""Queries on a database that goes away and comes back."""

from collections.abc import Callable
from typing import TypeVar

import psycopg

T = TypeVar("T")


class Watch:
    """Reuses its connection while it lasts, because it queries often."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None

    def ask(self, look: Callable[[psycopg.Connection], T], otherwise: T) -> T:
        """Return the result; `otherwise` while the database is away."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=2)
            return look(self._connection)
        except psycopg.OperationalError:
            self.close()
            return otherwise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
