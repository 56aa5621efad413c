"""The shop in empty tables, with a clock that can be moved."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from orders.app import app, install
from sereno import Sereno
from sereno.monitoring.verify import verify
from sereno.testing.kit import Kit

RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def kit(sereno_kit: Callable[[Sereno], Kit]) -> Kit:
    kit = sereno_kit(app)
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("drop schema if exists orders cascade")
        install(connection)
    return kit


@pytest.fixture
def connection(kit: Kit) -> Iterator[psycopg.Connection[Any]]:
    """The connection of the web application; each `with connection.transaction()` is a request."""
    with psycopg.connect(app.url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def run_sql(connection: psycopg.Connection[Any]) -> RunSql:
    """Return a function that runs SQL; `sereno.` is replaced by the schema of the test."""

    def rows(query: str, *values: Any) -> list[tuple[Any, ...]]:
        found = connection.execute(query.replace("sereno.", f"{app.settings.schema}.").encode(), values or None)
        return found.fetchall() if found.description else []

    return rows


@pytest.fixture
def assert_verified(kit: Kit) -> Callable[[], None]:
    """Return a function that checks that `sereno verify` finds nothing."""

    def check() -> None:
        assert [each for each in app.database.run(verify(lease=app.settings.lease)) if not each.holds] == []

    return check
