"""An archive in a directory of the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sereno import Sereno
from tests.archive.archive_steps import archiver, cold_place


@pytest.fixture
def place() -> Iterator[Path]:
    with cold_place() as path:
        yield path


@pytest.fixture
def archive_on(place: Path) -> dict[str, str]:
    """Return the environment in which the archive is on."""
    days = {"SERENO_KEEP_DELIVERIES_DAYS": "30", "SERENO_KEEP_DEAD_DAYS": "30"}
    return {"SERENO_ARCHIVE_URL": f"file://{place}", **days}


async def archive_all(app: Sereno, place: Path, **settings: int) -> None:
    """Move and export everything that is old enough."""
    working = archiver(app, place, **settings)
    moved = await working.move()
    exported = await working.export()
    assert [*moved.problems, *exported.problems] == []
    await app.database.aclose()
