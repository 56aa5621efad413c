"""An archiver that dies at any step loses and duplicates nothing, and the next run finishes its work."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

import psycopg
import pytest

from sereno import DatabaseUnavailable, Sereno
from sereno.archive import store as archive
from sereno.database.embedded import EmbeddedPostgres
from sereno.monitoring.verify import verify
from tests.acceptance.conftest import WorkerProcess
from tests.archive.archive_steps import (
    DAY,
    TENDERS,
    Row,
    add_everything,
    add_jobs,
    add_logs,
    add_tenders,
    archiver,
    cold_place,
    everything,
    places_of,
)
from tests.facts import TIMEOUT, advance, one, state, until
from tests.faults.archive_app import report_steps
from tests.faults.server import restart

ROOT = Path(__file__).parents[2]
# Every step after which the process is killed; some at a later occurrence, when other files are under way. A chain has
# one database: a process that is killed at a step is followed by one that is killed at the next; the last finishes.
CHAINS = {
    "moving": (
        "old_partitions", "move_day", "move_children", "move_rows", "move_rows 4", "move_table", "plan", "plan 3",
        "describe",
    ),
    "writing": (
        "write", "write 3", "put", "put 4", "uploaded", "uploaded 3", "get", "get 3", "put_bytes", "get_bytes",
    ),
    "settling": (
        "verified", "verified 5", "settle_batch", "settle_batch 4", "length", "drop_batch", "drop_batch 3",
    ),
}  # fmt: skip

Order = Callable[..., int]


@pytest.fixture
def place() -> Iterator[Path]:
    with cold_place() as path:
        yield path


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Order]:
    """Return a function that runs an archiver in its own process and returns its exit code.

    Killed processes leave their temporary files behind.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.archive_app"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "TMPDIR": str(tmp_path_factory.mktemp("dead")),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as forker:
        assert forker.stdin is not None
        assert forker.stdout is not None
        orders, exit_codes = forker.stdin, forker.stdout

        def order(url: str, place: Path, step: str | None = None, within: float | None = None) -> int:
            with psycopg.connect(url, autocommit=True) as connection:
                before = backends(connection)
                orders.write(json.dumps({"url": url, "place": str(place), "step": step, "within": within}) + "\n")
                orders.flush()
                ended = int(exit_codes.readline())
                # The server finishes the statements that it sent before it died, and then ends its connections.
                until(lambda: backends(connection) <= before)
            return ended

        yield order
        orders.close()
        forker.wait(timeout=30)


def backends(connection: psycopg.Connection) -> set[int]:
    """Return the process ids of the connections to this database."""
    found = connection.execute(
        "select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
    )
    return {pid for (pid,) in found}


def assert_sound(app: Sereno, connection: psycopg.Connection, place: Path, before: Counter[Row]) -> None:
    """Check that every row exists once, and that every invariant holds."""
    after = everything(connection, place)
    assert (before - after, after - before) == (Counter(), Counter())
    broken = {check.name: check.violations for check in app.database.run(verify(lease=30.0)) if check.violations}
    assert broken == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(CHAINS["moving"], marks=pytest.mark.slow, id="moving"),
        pytest.param(CHAINS["writing"], marks=pytest.mark.slow, id="writing"),
        pytest.param(CHAINS["settling"], marks=pytest.mark.slow, id="settling"),
    ],
)
@pytest.mark.timeout(600)
def test_archivers_that_die_after_any_step_lose_nothing_and_the_last_finishes(
    app: Sereno,
    connection: psycopg.Connection,
    database_url: str,
    place: Path,
    process: Order,
    steps: Sequence[str],
) -> None:
    add_everything(connection, 50)
    before = everything(connection, place)
    advance(connection, 60 * DAY)
    for step in steps:
        assert process(database_url, place, step) == -signal.SIGKILL, f"it did not reach {step}"
        assert_sound(app, connection, place, before)
    assert process(database_url, place) == 0
    assert_sound(app, connection, place, before)
    assert set(places_of(connection)) == {"dropped"}
    assert one(connection, "select count(*) from pg_tables where schemaname = 'sereno_archive'") == 0
    assert one(connection, "select count(*) from sereno.archive_files where failed_at is not null") == 0


@pytest.mark.slow
def test_repeatedly_killed_archivers_lose_nothing_and_the_last_finishes(
    app: Sereno, connection: psycopg.Connection, database_url: str, place: Path, process: Order
) -> None:
    add_tenders(connection, 50)
    ends = []
    for number in range(5):
        add_jobs(connection, 1 + 1000 * number, 50)
        add_logs(connection, 50)
        before = everything(connection, place)
        advance(connection, 40 * DAY)
        ends.append(process(database_url, place, within=0.6))
        assert_sound(app, connection, place, before)
    assert -signal.SIGKILL in ends
    assert process(database_url, place) == 0
    assert_sound(app, connection, place, before)
    assert set(places_of(connection)) == {"dropped"}


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_database_crashes_while_archiving_lose_nothing(
    own_server: tuple[EmbeddedPostgres, Path], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, directory = own_server
    app = Sereno(server.url)
    with psycopg.connect(server.url, autocommit=True) as connection:
        add_everything(connection, 100)
        before = everything(connection, place)
        advance(connection, 60 * DAY)
    working = archiver(app, place, TENDERS)
    waiting, crashing = deque(["move_day", "plan", "write", "drop_batch"]), Lock()

    def watched(done: str) -> None:
        # Files are written in threads.
        with crashing:
            if waiting and done == waiting[0]:
                waiting.popleft()
                restart(server, directory)

    report_steps(watched, working, app, monkeypatch)

    while waiting:
        left = len(waiting)
        # A crash between two transactions goes unnoticed; otherwise it is reported as DatabaseUnavailable.
        with suppress(DatabaseUnavailable):
            await working.move()
            await working.export()
        # A thread may still restart the server.
        await asyncio.to_thread(crashing.acquire)
        crashing.release()
        assert len(waiting) < left, f"it did not reach {waiting[0]}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            assert_sound(app, connection, place, before)
    with psycopg.connect(server.url, autocommit=True) as connection:
        moved, exported = await working.move(), await working.export()
        assert moved.problems + moved.waiting + exported.problems == []
        assert_sound(app, connection, place, before)
        assert set(places_of(connection)) == {"dropped"}
    await app.aclose()


@pytest.mark.slow
def test_a_stopping_worker_does_not_wait_for_the_storage(
    app: Sereno, connection: psycopg.Connection, worker: Callable[..., WorkerProcess]
) -> None:
    add_logs(connection, 5)
    advance(connection, 60 * DAY)
    app.database.run(archive.move_rows("logs", 30.0 * DAY, 1000))
    # A server that accepts connections and never responds.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        running = worker(
            SERENO_GRACE="1",
            SERENO_ARCHIVE_URL="s3://bucket/cold",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{silent.getsockname()[1]}",
            AWS_ALLOW_HTTP="true",
            AWS_ACCESS_KEY_ID="id",
            AWS_SECRET_ACCESS_KEY="secret",  # noqa: S106 - never checked
            AWS_REGION="us-east-1",
        )
        job = one(connection, "select sereno.enqueue('sereno.archive_export')")
        silent.settimeout(TIMEOUT)
        request, _ = silent.accept()
        with request:
            running.signal(signal.SIGTERM)
            running.process.wait(timeout=20)
    assert state(connection, job) == "ready", "another worker can run it"
    assert places_of(connection) == {"moved": 1}
