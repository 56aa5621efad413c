"""Queries on a database that crashes and restarts."""

from collections.abc import Callable
from typing import TypeVar

import psycopg

T = TypeVar("T")


class Watch:
    """Reuses its connection while it lasts, because it queries often."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None

    def ask(self, query: Callable[[psycopg.Connection], T], otherwise: T) -> T:
        """Return the result of the query, or `otherwise` while the database is down."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=2)
            return query(self._connection)
        except psycopg.OperationalError:
            self.close()
            return otherwise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
