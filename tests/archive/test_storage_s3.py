"""Files in a bucket: whatever the store does, rows are dropped only for files that were read back unchanged."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.archive import storage as module
from sereno.archive import store as archive
from sereno.archive.archiver import Archiver
from sereno.archive.storage import ObjectNotFound, Storage
from sereno.errors import ArchiveUnavailable
from tests.archive.archive_steps import DAY, TENDERS, add_logs, add_some, archiver, everything, places_of
from tests.archive.conftest import CANARIES, Bucket
from tests.archive.faulty_storage import LATE_BYTES, SHORT, Fault
from tests.facts import advance, one


def working(app: Sereno, bucket: Bucket, **settings: object) -> Archiver:
    return archiver(app, Path(), TENDERS, **{"archive_url": bucket.url} | settings)


# Seconds for a request to a slow store. The second one serves good requests before that.
SOON: dict[Fault, float] = {"slow to respond": 1.0, "slow on the way out": 5.0}


@contextmanager
def bad(bucket: Bucket, fault: Fault, *, only: str = "", method: str = "") -> Iterator[None]:
    """Only a slow store gets a short timeout: a good one may be as slow as the machine."""
    with bucket.store.bad(fault, only=only, method=method), pytest.MonkeyPatch.context() as patched:
        if fault in SOON:
            for name in ("REQUEST", "TRIES"):
                patched.setattr(module, name, timedelta(seconds=SOON[fault]))
        yield


def error_events(caplog: pytest.LogCaptureFixture) -> set[str]:
    """Return the events that were logged as errors."""
    return {record.event for record in caplog.records if record.levelno == logging.ERROR}  # type: ignore[attr-defined]


def hold(app: Sereno, connection: psycopg.Connection) -> int:
    """Return a new batch that waits for its file."""
    add_logs(connection, 50)
    advance(connection, 60 * DAY)
    app.database.run(archive.move_rows("logs", 30.0 * DAY, 1000))
    return int(one(connection, "select max(id) from sereno.archive_batches"))


def stored_secrets(connection: psycopg.Connection) -> list[str]:
    """Return the secrets that are in the stored errors of batches and files."""
    found = connection.execute(
        "select concat(string_agg(b.error, ''), string_agg(f.error, '')) from sereno.archive_batches b "
        "left join sereno.archive_files f on f.batch_id = b.id"
    ).fetchone()
    return [name for name, value in CANARIES.items() if value in str(found)]


@pytest.fixture
def held(app: Sereno, connection: psycopg.Connection, bucket: Bucket) -> Iterator[int]:
    """A batch that waits for its file."""
    yield hold(app, connection)
    assert stored_secrets(connection) == []


@pytest.mark.slow
async def test_old_rows_are_archived_into_a_bucket(
    app: Sereno, connection: psycopg.Connection, bucket: Bucket, tmp_path: Path
) -> None:
    add_some(connection)
    before = everything(connection, tmp_path)
    advance(connection, 60 * DAY)
    mover = working(app, bucket)
    await mover.move()
    exported = await mover.export()
    assert exported.problems == []
    assert set(places_of(connection)) == {"dropped"}
    assert everything(connection, bucket.copied(tmp_path)) == before
    manifests = [name for name in mover.place.names() if name.endswith(".json")]
    assert len(manifests) == exported.files


STORE_FAULTS: dict[Fault, tuple[str, str]] = {
    "cut on the way in": ("archive.unverified", "bytes were read back"),
    "changed on the way in": ("archive.unverified", "its checksum is"),
    "dropped on the way in": ("archive.failed", "is not in the archive"),
    "changed on the way out": ("archive.unverified", "its checksum is"),
    "shorter on the way out": ("archive.unverified", "bytes were read back"),
    "cut on the way out": ("archive.failed", "could not read"),
    "reset on the way in": ("archive.failed", "could not write"),
    "reset on the way out": ("archive.failed", "could not read"),
    "slow to respond": ("archive.failed", "could not write"),
    "slow on the way out": ("archive.failed", "could not read"),
    "forbidden": ("archive.failed", "could not write"),
    "unavailable": ("archive.failed", "could not write"),
}


@pytest.mark.slow
async def test_a_file_that_cannot_be_verified_keeps_its_rows(
    app: Sereno,
    connection: psycopg.Connection,
    bucket: Bucket,
    caplog: pytest.LogCaptureFixture,
    subtests: pytest.Subtests,
) -> None:
    for fault, (event, words) in STORE_FAULTS.items():
        with subtests.test(fault=fault):
            held = hold(app, connection)
            caplog.clear()
            with bad(bucket, fault, only=".parquet"):
                exported = await working(app, bucket).export()
            assert (exported.files, exported.dropped, len(exported.problems)) == (0, 0, 1)
            assert stored_secrets(connection) == []
            assert words in exported.problems[0]
            assert error_events(caplog) == {event}
            row = connection.execute(
                "select error, failed_at is not null, verified_at is null from sereno.archive_files "
                "where batch_id = %s",
                [held],
            ).fetchone()
            assert row is not None
            assert (row[0] in exported.problems[0], *row[1:]) == (True, True, True)
            assert places_of(connection)["moved"] == 1
            assert one(connection, f"select count(*) from sereno_archive.logs_{held}") == 50
            assert [name for name, value in CANARIES.items() if value in caplog.text + str(exported)] == []
            again = await working(app, bucket).export()
            assert (again.problems, again.rows, again.dropped) == ([], 50, 1)
            left = "select count(*) from sereno.archive_files where failed_at is not null or error is not null"
            assert one(connection, left) == 0


@pytest.mark.slow
async def test_a_manifest_is_read_back_as_well(
    app: Sereno, connection: psycopg.Connection, bucket: Bucket, subtests: pytest.Subtests
) -> None:
    faults: tuple[Fault, ...] = (
        "cut on the way in", "changed on the way out", "dropped on the way in", "unavailable",
    )  # fmt: skip
    for fault in faults:
        with subtests.test(fault=fault):
            hold(app, connection)
            with bucket.store.bad(fault, only=".json"):
                exported = await working(app, bucket).export()
            assert (exported.dropped, len(exported.problems)) == (0, 1)
            assert places_of(connection)["moved"] == 1
            assert stored_secrets(connection) == []
            assert (await working(app, bucket).export()).dropped == 1


@pytest.mark.slow
async def test_a_store_that_fails_at_the_last_check_keeps_the_rows(
    app: Sereno,
    connection: psycopg.Connection,
    bucket: Bucket,
    caplog: pytest.LogCaptureFixture,
    subtests: pytest.Subtests,
) -> None:
    faults: tuple[Fault, ...] = ("forbidden", "unavailable", "slow to respond")
    for fault in faults:
        with subtests.test(fault=fault):
            held = hold(app, connection)
            assert (await working(app, bucket, archive_grace_days=1).export()).files == 1
            advance(connection, 2 * DAY)
            caplog.clear()
            with bad(bucket, fault, method="HEAD"):
                exported = await working(app, bucket).export()
            assert (exported.files, exported.dropped, len(exported.problems)) == (0, 0, 1)
            assert stored_secrets(connection) == []
            assert error_events(caplog) == {"archive.failed"}
            assert places_of(connection)["verified"] == 1
            assert one(connection, f"select count(*) from sereno_archive.logs_{held}") == 50
            again = await working(app, bucket).export()
            assert (again.files, again.dropped) == (0, 1)


@pytest.mark.slow
async def test_an_object_missing_before_the_drop_is_written_again(
    app: Sereno, connection: psycopg.Connection, bucket: Bucket, held: int, tmp_path: Path
) -> None:
    before = everything(connection, tmp_path)
    await working(app, bucket, archive_grace_days=1).export()
    advance(connection, 2 * DAY)
    bucket.delete(one(connection, "select object from sereno.archive_files"))
    exported = await working(app, bucket).export()
    assert (exported.dropped, len(exported.problems)) == (0, 1)
    assert one(connection, f"select count(*) from sereno_archive.logs_{held}") == 50
    again = await working(app, bucket).export()
    assert (again.problems, again.files, again.dropped) == ([], 1, 1)
    assert everything(connection, bucket.copied(tmp_path)) == before


@pytest.mark.slow
async def test_an_unreachable_store_and_a_missing_bucket_are_reported(
    app: Sereno, connection: psycopg.Connection, bucket: Bucket, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = await working(app, bucket, archive_url=f"s3://{bucket.name}-not/cold").export()
    assert len(missing.problems) == 1
    assert "could not write" in missing.problems[0]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    with monkeypatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free}")
        silent = await working(app, bucket).export()
    assert len(silent.problems) == 1
    assert places_of(connection) == {"moved": 1}
    assert (await working(app, bucket).export()).dropped == 1
    assert held


@pytest.mark.slow
async def test_a_store_that_is_down_gets_few_requests(
    app: Sereno, connection: psycopg.Connection, bucket: Bucket
) -> None:
    add_some(connection)
    advance(connection, 60 * DAY)
    mover = working(app, bucket)
    await mover.move()
    waiting = one(connection, "select count(*) from sereno.archive_batches")
    with bucket.store.bad("forbidden"):
        exported = await mover.export()
    assert 3 <= len(exported.problems) <= 4 < waiting
    assert one(connection, "select count(*) from sereno.archive_files where failed_at is not null") <= 4
    # Files that failed before come last and do not delay the others.
    files = app.database.run(archive.open_files())
    failed = {
        tuple(row) for row in connection.execute("select batch_id, number from sereno.archive_files where tries > 0")
    }
    assert set(files[-len(failed) :]) == failed
    assert (await working(app, bucket).export()).problems == []
    assert set(places_of(connection)) == {"dropped"}


@pytest.mark.slow
def test_a_large_object_is_uploaded_in_parts_and_read_back(bucket: Bucket, tmp_path: Path) -> None:
    content = os.urandom(20_000_000)
    file, back = tmp_path / "written", tmp_path / "read"
    file.write_bytes(content)
    place = Storage(bucket.url, str(tmp_path))
    place.put("large/one", file)
    assert place.length("large/one") == len(content)
    assert place.get("large/one", back) == (sha256(content).hexdigest(), len(content))
    assert back.read_bytes() == content
    with bucket.store.bad("changed on the way in", method="PUT"):
        place.put("large/one", file)
    assert place.get("large/one", back)[0] != sha256(content).hexdigest()
    with bucket.store.bad("reset on the way in", method="PUT"), pytest.raises(ArchiveUnavailable):
        place.put("large/two", file)
    assert place.length("large/two") is None, "the whole object or nothing"


@pytest.mark.slow
def test_a_large_object_may_take_longer_than_one_request(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each piece takes a tenth of the timeout, all of them together more; a piece that times out is requested again.
    monkeypatch.setattr(module, "CHUNK", LATE_BYTES)
    monkeypatch.setattr(module, "REQUEST", timedelta(seconds=10 * SHORT))
    monkeypatch.setattr(module, "MOST_TRIES", 5)
    place = Storage(bucket.url, str(tmp_path))
    content = bytes(12 * LATE_BYTES)
    place.put_bytes("slow", content)
    with bucket.store.bad("late"):
        assert place.get("slow", tmp_path / "read") == (sha256(content).hexdigest(), len(content))


@pytest.mark.slow
def test_objects_are_listed_and_missing_ones_reported(bucket: Bucket, tmp_path: Path) -> None:
    place = Storage(bucket.url, str(tmp_path))
    assert list(place.names()) == []
    for name in ("jobs/1", "jobs/2", "logs/1"):
        place.put_bytes(name, name.encode())
    assert sorted(place.names()) == ["jobs/1", "jobs/2", "logs/1"]
    assert sorted(place.names("jobs")) == ["jobs/1", "jobs/2"]
    assert place.get_bytes("jobs/2") == b"jobs/2"
    assert place.length("jobs/3") is None
    with pytest.raises(ObjectNotFound, match="jobs/3 is not in the archive at s3://"):
        place.get_bytes("jobs/3")
    with bucket.store.bad("unavailable"), pytest.raises(ArchiveUnavailable, match="could not list"):
        list(place.names())


def test_credentials_repeated_by_a_store_are_masked(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "canary-session-token")
    place = Storage(bucket.url, str(tmp_path))
    with bucket.store.bad("forbidden"), pytest.raises(ArchiveUnavailable) as refused:
        place.put_bytes("name", b"content")
    message = f"{refused.value!r} {refused.value.__cause__!r}"
    assert "403" in message
    canaries = [*CANARIES.values(), "canary-session-token"]
    assert [value for value in canaries if value in message] == []
