"""Large files are written and checked by a separate process, while the event loop runs."""

import asyncio
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from sereno import Sereno
from sereno.archive import file_process
from sereno.archive.file_process import SMALL_ROWS
from sereno.archive.parquet import InvalidParquetFile
from sereno.archive.rows import PlannedFile
from tests.archive.archive_steps import DAY, add_jobs, add_logs, archiver
from tests.facts import advance, auntil, one, until

CANARY = "canary-37"


@asynccontextmanager
async def locked_batch(app: Sereno, connection: psycopg.Connection, place: Path) -> AsyncIterator[int]:
    """Yield a batch whose table is locked meanwhile, so that writing its file waits."""
    add_logs(connection, 3)
    advance(connection, 60 * DAY)
    await archiver(app, place, archive_kinds=["logs"]).move()
    ((batch, held),) = connection.execute("select id, held_in from sereno.archive_batches").fetchall()
    connection.execute("select sereno.plan_files(%s, 100)", [batch])
    with psycopg.connect(app.database.url) as other:
        other.execute(f"lock table sereno_archive.{held} in access exclusive mode".encode())
        yield batch


def writing(connection: psycopg.Connection) -> bool:
    """Return whether a file is being written, and waits for its table."""
    query = (
        "select exists (select from pg_stat_activity where datname = current_database() "
        "and wait_event_type = 'Lock' and strpos(query, 'sereno.file_query(') > 0)"
    )
    return bool(one(connection, query))


def writers() -> list[int]:
    """Return the processes that write files."""
    found = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "sereno.archive.file_process"],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [int(line) for line in found.stdout.split()]


def shown_of(pid: int) -> bytes:
    """Return what other users of the host can read of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()


def files(place: Path) -> int:
    return len(list(place.rglob("*.parquet")))


def rows_of_files(place: Path, kind: str) -> int:
    return sum(pq.read_table(file).num_rows for file in place.rglob(f"{kind}-*.parquet"))


@pytest.mark.slow
async def test_a_large_batch_is_written_by_a_separate_process(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, started = subprocess.run, Counter[str]()

    def noted(command: Sequence[str], **options: Any) -> Any:
        if command[-1] == "sereno.archive.file_process" and "input" in options:
            started[json.loads(options["input"])[0]] += 1
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", noted)
    add_jobs(connection, 1, SMALL_ROWS)
    advance(connection, 60 * DAY)
    working = archiver(app, place, archive_kinds=["jobs"])
    await working.move()
    exported = await working.export()
    assert (exported.problems, exported.rows) == ([], 3 * SMALL_ROWS)
    assert started == {"write": files(place), "check": files(place)}, "one process per file"
    assert writers() == []
    assert one(connection, "select count(*) from sereno.archive_batches where dropped_at is null") == 0
    assert rows_of_files(place, "jobs") == SMALL_ROWS


@pytest.mark.slow
async def test_the_event_loop_runs_while_a_file_is_written(
    app: Sereno, database_url: str, connection: psycopg.Connection, place: Path, tmp_path: Path
) -> None:
    async with locked_batch(app, connection, place) as batch:
        planned = PlannedFile(database_url, "sereno", batch, 1)
        slow = asyncio.create_task(asyncio.to_thread(file_process.write, SMALL_ROWS, planned, tmp_path / "file", {}))
        await auntil(lambda: writing(connection) and bool(writers()))
        for pid in writers():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(InvalidParquetFile, match="the process that handled the file exited with code -9"):
            await slow
    until(lambda: not writing(connection))


@pytest.mark.parametrize("rows", [1, SMALL_ROWS])
def test_an_error_in_the_process_is_reported_unchanged(database_url: str, tmp_path: Path, rows: int) -> None:
    with pytest.raises(InvalidParquetFile, match="the rows could not be written to a file") as caught:
        file_process.write(rows, PlannedFile(database_url, "sereno", 404, 1), tmp_path / "file", {})
    assert "query returned no rows" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, SMALL_ROWS])
def test_a_password_is_in_no_message(tmp_path: Path, rows: int, capfd: pytest.CaptureFixture[str]) -> None:
    unreachable = f"postgresql://ann:{CANARY}@127.0.0.1:1/shop"
    with pytest.raises(InvalidParquetFile) as refused:
        file_process.write(rows, PlannedFile(unreachable, "sereno", 1, 1), tmp_path / "file", {})
    assert CANARY not in str(refused.value)
    assert CANARY not in "".join(capfd.readouterr())


@pytest.mark.slow
async def test_the_process_list_shows_no_password(
    app: Sereno, database_url: str, connection: psycopg.Connection, place: Path, tmp_path: Path
) -> None:
    url = database_url.replace("//postgres@", f"//postgres:{CANARY}@")
    async with locked_batch(app, connection, place) as batch:
        planned = PlannedFile(url, "sereno", batch, 1)
        slow = asyncio.create_task(asyncio.to_thread(file_process.write, SMALL_ROWS, planned, tmp_path / "file", {}))
        await auntil(lambda: writing(connection) and bool(writers()))
        (pid,) = writers()
        shown = shown_of(pid)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(InvalidParquetFile):
            await slow
    assert CANARY.encode() not in shown
