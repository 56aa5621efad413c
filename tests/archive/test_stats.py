"""The archive's counts are reported with the worker's own, once."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.telemetry.archive_stats import COUNTED, ArchiveTally
from sereno.telemetry.exposition import exposition
from sereno.telemetry.metrics import MetricTally
from tests.facts import advance
from tests.server.api.archive.archived import OLD_JOBS, archive, export, fill, move


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[Sereno]:
    made = Sereno(database_url, archive_url=f"file://{tmp_path / 'archive'}")

    @made.task
    def work() -> None: ...

    COUNTED.take()
    yield made
    COUNTED.take()
    made.close()


@pytest.mark.slow
def test_files_rows_and_drops_are_counted(app: Sereno, connection: psycopg.Connection, tmp_path: Path) -> None:
    fill(connection)
    move(app)
    place = tmp_path / "archive"
    place.write_text("in the way")
    assert export(app)
    place.unlink()
    archive(app)
    advance(connection, 8 * 86400)
    archive(app)
    worker = app.worker({"default": 1})
    tally = worker.take_tally()
    assert (tally.archive.rows, tally.archive.dropped) == (OLD_JOBS, 1)
    assert tally.archive.files == {"failed": 1, "verified": 1}
    assert tally.archive.bytes > 0
    assert worker.take_tally().archive == ArchiveTally()
    text = exposition(tally, [], "0").decode()
    assert f"sereno_archive_rows_total {float(OLD_JOBS)}" in text
    assert 'sereno_archive_files_total{outcome="failed"} 1.0' in text
    assert 'sereno_archive_files_total{outcome="verified"} 1.0' in text
    assert "sereno_archive_batches_dropped_total 1.0" in text


def test_counts_of_several_workers_are_added() -> None:
    one, other = MetricTally(), MetricTally()
    one.archive.file("verified", 5, 100)
    other.archive.file("verified", 7, 10)
    other.archive.file("unverified")
    one.add(other)
    assert one.archive == ArchiveTally(rows=12, bytes=110, files={"verified": 2, "unverified": 1})
    taken = one.take()
    assert taken.archive.rows == 12
    assert one.archive == ArchiveTally()
    taken.archive.file("failed")
    assert one.archive.files == {}
