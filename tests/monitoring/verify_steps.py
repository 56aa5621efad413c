"""The invariants that are violated, as `verify` finds them or inside a transaction that is rolled back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from sereno import Sereno
from sereno.database.statement import run
from sereno.monitoring import invariants
from sereno.monitoring.verify import GRACE, verify

LEASE = 30.0


def broken(app: Sereno, window: int | None = 1000) -> dict[str, list[int]]:
    """Return the rows that violate an invariant, by its name."""
    results = app.database.run(verify(lease=LEASE, window=window))
    return {result.name: [violation.id for violation in result.violations] for result in results if not result.holds}


@contextmanager
def undone(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Roll back the changes of a block, so that several violations can be tried in one database."""
    with connection.transaction(force_rollback=True):
        yield


def found_inside(connection: psycopg.Connection[Any], window: int | None = 1000) -> dict[str, dict[int, str]]:
    """Return id and description of the violating rows, as the open transaction sees them; `verify` needs a new one."""
    found = {
        name: dict(run(connection, invariants.violations(name, window=window, grace=LEASE + GRACE)))
        for name in invariants.INVARIANTS
    }
    return {name: rows for name, rows in found.items() if rows}


def broken_inside(connection: psycopg.Connection[Any], window: int | None = 1000) -> dict[str, list[int]]:
    """Return what `broken` returns, as the open transaction sees it."""
    return {name: list(rows) for name, rows in found_inside(connection, window).items()}
