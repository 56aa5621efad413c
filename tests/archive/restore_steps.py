"""Steps shared by restore tests: restore rows and compare them with the originals."""

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from sereno import Sereno
from sereno.archive import restore
from sereno.archive.orders import OwnTable
from sereno.archive.restore import RestoreRequest, RestoreResult
from sereno.archive.rows import TimeSpan
from sereno.archive.storage import Storage
from sereno.database.driver import drive
from tests.archive.archive_steps import archiver

# An age above every retention.
EVER = datetime(9000, 1, 1, tzinfo=UTC)


async def archive(app: Sereno, place: Path, *tables: OwnTable, grace: int = 0) -> None:
    """Move and export all old rows."""
    working = archiver(app, place, *tables, archive_grace_days=grace)
    moved = await working.move()
    exported = await working.export()
    assert [*moved.problems, *exported.problems] == []


def restore_rows(app: Sereno, place: Path, kind: str, *keys: object, **more: Any) -> RestoreResult:
    """Restore rows with these keys, or all of them."""
    span = TimeSpan(keys=[str(key) for key in keys]) if keys else TimeSpan(to_at=EVER)
    options = {name: more.pop(name) for name in ("yes", "actor") if name in more}
    request = RestoreRequest(kind, span, **more)
    request.check()
    with closing(restore.restore(request, cold(place), lambda *_: None, **options)) as plan:
        return drive(plan, app.database.run)


def cold(place: Path) -> Storage:
    return Storage(f"file://{place}", str(place))


def digests(connection: psycopg.Connection, *tables: str) -> dict[str, list[str]]:
    """Return a digest of every row of some tables, as PostgreSQL writes them."""
    return {
        table: [row[0] for row in connection.execute(f"select md5(t::text) from {table} t order by 1".encode())]
        for table in tables
    }
