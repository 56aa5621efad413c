"""`sereno archive …` on a filled archive: output and effect of each command."""

import asyncio
import csv
import io
import json
import os
import pty
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.archive.storage import Storage
from tests.archive.archive_steps import DAY, add_deliveries, add_event, add_jobs, add_logs, cold_place
from tests.cli.archive.conftest import archive_all
from tests.cli.conftest import PROGRAM, Command, process_environment
from tests.databases import DatabasePool
from tests.facts import advance, one, until
from tests.warm_process import WarmProcess


@pytest.fixture(scope="module")
def filled(databases: DatabasePool, template: str) -> Iterator[tuple[str, Path]]:
    """Archive jobs, a few deliveries and log lines once, and drop them from the database; each test gets a copy."""
    database = databases.create(template)
    with cold_place() as place:
        with psycopg.connect(database.url, autocommit=True) as connection:
            add_jobs(connection, 1, 10)
            add_jobs(connection, 101, 2, "dead")
            add_deliveries(connection, add_event(connection))
            add_logs(connection, 4)
            advance(connection, 60 * DAY)
        with closing(Sereno(database.url)) as app:
            asyncio.run(archive_all(app, place))
        yield database.name, place
    databases.drop(database)


@pytest.fixture
def database_url(databases: DatabasePool, filled: tuple[str, Path], place: Path) -> Iterator[str]:
    """Return the URL of a copy of the filled database, beside a copy of the files."""
    template, files = filled
    shutil.copytree(files, place)
    with databases.copy(template) as url:
        yield url


@pytest.mark.slow
def test_status_list_and_show_print_batches_and_files(
    sereno: Command, connection: psycopg.Connection, archive_on: dict[str, str]
) -> None:
    found = json.loads(sereno("archive", "status", "-o", "json", **archive_on).stdout)
    jobs = next(kind for kind in found["kinds"] if kind["kind"] == "jobs")
    assert (found["on"], jobs["found"]["verified_rows"], jobs["found"]["dropped_rows"]) == (True, 12, 12)
    table = sereno("archive", "status", "-o", "table", **archive_on).stdout
    assert "The archive is on" in table
    lines = sereno("archive", "list", "--kind", "job", **archive_on).stdout.splitlines()
    assert lines[0].startswith("id\tstate\tkind")
    assert len(lines) == 3
    batch = lines[1].split("\t")[0]
    shown = json.loads(sereno("archive", "show", batch, "-o", "json", **archive_on).stdout)
    assert shown["files"][0]["state"] == "verified"
    assert shown["files"][0]["object"] in sereno("archive", "show", batch, **archive_on).stdout
    assert sereno("archive", "show", "999", **archive_on).exit_code == 7
    assert sereno("archive", "list", "--state", "failed", "--fail-empty", **archive_on).exit_code == 7
    connection.execute("update sereno.archive_files set failed_at = sereno.now(), error = E'bad \\x1b[31m'")
    table = sereno("archive", "status", "-o", "table", **archive_on).stdout
    assert "its rows are NOT in the database any more" in table
    assert "\x1b[31m" not in table


@pytest.mark.slow
def test_restore_writes_archived_rows_back(
    sereno: Command, connection: psycopg.Connection, archive_on: dict[str, str]
) -> None:
    dry = sereno("archive", "restore", "job", "3", "--dry-run", **archive_on)
    assert dry.stdout == "Would restore 1 row of jobs.\n"
    assert one(connection, "select count(*) from sereno.history") == 0
    done = sereno("archive", "restore", "job", "3", "102", "--for", "7d", **archive_on)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "Restored 2 rows of jobs and 4 of attempts.\n"
    assert one(connection, "select array_agg(id order by id) from sereno.history") == [3, 102]
    assert one(connection, "select max(until) - sereno.now() from sereno.restored").days == 6
    again = sereno("archive", "restore", "jobs", "3", **archive_on)
    assert (again.exit_code, "1 already existed" in again.stderr) == (0, True)
    assert sereno("archive", "restore", "delivery", *map(str, _ids(connection, "deliveries")), **archive_on).stdout == (
        "Restored 3 rows of deliveries and 6 of receipts.\n"
    )
    assert (
        sereno("archive", "restore", "log", "--from", "2020-01-01", **archive_on).stdout == "Restored 4 rows of logs.\n"
    )
    for words, code in (
        (["job", "999"], 7),
        (["job"], 2),
        (["job", "3", "--from", "2020-01-01"], 2),
        (["job", "x"], 2),
        (["banana", "3"], 2),
        (["job", "3", "--for", "never"], 3),
        (["logs", "--from", "2000-01-01", "--to", "2000-01-02", "--fail-empty"], 7),
        (["logs", "--from", "2000-01-01", "--to", "2000-01-02"], 0),
    ):
        result = sereno("archive", "restore", *words, **archive_on)
        assert result.exit_code == code, (words, result.stderr)


@pytest.mark.slow
def test_show_of_an_archived_row_names_the_archive(sereno: Command, connection: psycopg.Connection) -> None:
    for noun, number in (("job", 3), ("delivery", _ids(connection, "deliveries")[0])):
        shown = sereno(noun, "show", str(number))
        assert shown.exit_code != 0
        assert f"{noun} {number} is not here; it may be in the archive: batch" in shown.stderr
        assert f"sereno archive restore {noun} {number}" in shown.stderr
    assert "no job has the id 999" in sereno("job", "show", "999").stderr


def _ids(connection: psycopg.Connection, kind: str) -> list[int]:
    row = connection.execute("select first_id, last_id from sereno.archive_files where kind = %s", [kind]).fetchone()
    assert row is not None
    return list(range(row[0], row[1] + 1))


@pytest.mark.slow
def test_a_restore_of_many_rows_needs_yes(
    sereno: Command, connection: psycopg.Connection, archive_on: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sereno.archive.restore.MOST", 3)
    refused = sereno("archive", "restore", "logs", "--from", "2000-01-01", **archive_on)
    assert refused.exit_code == 8
    assert "--yes" in refused.stderr
    assert one(connection, "select count(*) from sereno.logs") == 0
    assert sereno("archive", "restore", "logs", "--from", "2000-01-01", "--yes", **archive_on).exit_code == 0
    assert one(connection, "select subject from sereno.audit") == "4 logs"


def test_a_restore_into_a_table_without_a_column_says_what_to_do(
    sereno: Command, connection: psycopg.Connection, archive_on: dict[str, str]
) -> None:
    connection.execute("alter table sereno.logs drop column traceback")
    result = sereno("archive", "restore", "logs", "--from", "2000-01-01", **archive_on)
    assert result.exit_code == 8
    assert "traceback" in result.stderr
    assert "--without COLUMN" in result.stderr
    assert (
        sereno("archive", "restore", "log", "--from", "2000-01-01", "--without", "traceback", **archive_on).exit_code
        == 0
    )
    assert one(connection, "select count(*) from sereno.logs") == 4


@pytest.mark.slow
def test_query_prints_rows_in_every_format(sereno: Command, archive_on: dict[str, str]) -> None:
    sql = "select state, count(*) as n, min(id) as first from jobs group by 1 order by 1"
    assert sereno("archive", "query", sql, **archive_on).stdout == "state\tn\tfirst\ndead\t2\t101\nsucceeded\t10\t1\n"
    found = json.loads(sereno("archive", "query", sql, "-o", "json", **archive_on).stdout)
    assert found == [{"state": "dead", "n": 2, "first": 101}, {"state": "succeeded", "n": 10, "first": 1}]
    lines = sereno("archive", "query", sql, "-o", "jsonl", **archive_on).stdout.splitlines()
    assert [json.loads(line) for line in lines] == found
    rows = list(csv.reader(io.StringIO(sereno("archive", "query", sql, "-o", "csv", **archive_on).stdout)))
    assert rows == [["state", "n", "first"], ["dead", "2", "101"], ["succeeded", "10", "1"]]
    empty = sereno("archive", "query", "select 1 where false", "-o", "json", **archive_on).stdout
    assert json.loads(empty) == []
    table = sereno("archive", "query", "select i from range(1500) t(i)", "-o", "table", **archive_on)
    assert len(table.stdout.splitlines()) == 1001
    assert "more than 1,000 rows" in table.stderr
    assert len(sereno("archive", "query", "from range(1500)", **archive_on).stdout.splitlines()) == 1501
    evil = sereno("archive", "query", "select 'a' || chr(27) || '[31m' as x", **archive_on).stdout
    assert "\x1b" not in evil
    for words in (
        "select * from read_csv('/etc/passwd')",
        "copy (select 1) to '/tmp/x'",
        "select",
        "select 1; select 2",
    ):
        result = sereno("archive", "query", words, **archive_on)
        assert (result.exit_code, result.stdout) == (2, ""), words
    assert sereno("archive", "query", "select 1", "--to", "2000-01-01", **archive_on).exit_code == 7


def test_export_writes_a_file(sereno: Command, archive_on: dict[str, str], tmp_path: Path) -> None:
    result = sereno("archive", "export", "job", "--from", "2020-01-01", "--out", "jobs.csv", **archive_on)
    assert result.exit_code == 0, result.stderr
    with (tmp_path / "jobs.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 12
    assert sereno("archive", "export", "fires", "--out", "fires.csv", **archive_on).exit_code == 7
    assert sereno("archive", "export", "job", "--out", "jobs.txt", **archive_on).exit_code == 2
    assert sereno("archive", "export", "job", "--out", "no/such/jobs.csv", **archive_on).exit_code == 3


@pytest.mark.slow
def test_verify_finds_damaged_files(
    sereno: Command, connection: psycopg.Connection, archive_on: dict[str, str], place: Path
) -> None:
    files = one(connection, "select count(*) from sereno.archive_files")
    sound = sereno("archive", "verify", **archive_on)
    assert (sound.exit_code, sound.stderr) == (0, "")
    assert sound.stdout.startswith(f"{files} files of {files} intact")
    assert one(connection, "select count(*) from sereno.archive_files where checked_at > verified_at") == files
    objects = [row[0] for row in connection.execute("select object from sereno.archive_files order by object")]
    short, flipped, gone, alone = (place / name for name in objects[:4])
    short.write_bytes(short.read_bytes()[:-1])
    flipped.write_bytes(flipped.read_bytes()[:40] + b"?" + flipped.read_bytes()[41:])
    gone.unlink()
    Path(f"{alone}.json").unlink()
    (place / "unknown.parquet").write_text("who knows")
    result = sereno("archive", "verify", **archive_on)
    assert result.exit_code == 1
    assert result.stderr.count("Problem: ") == 4
    assert "1 object in the archive without a batch" in result.stderr
    assert "unknown.parquet" in result.stderr
    assert Path(f"{alone}.json").exists(), "the manifest is written again"
    assert one(connection, "select count(*) from sereno.archive_files where failed_at is not null") == 3
    again = sereno("archive", "verify", "--sample", "100", **archive_on)
    assert (again.exit_code, again.stderr.count("Problem: ")) == (1, 3)
    batch = one(connection, "select batch_id from sereno.archive_files where failed_at is null limit 1")
    assert sereno("archive", "verify", "--batch", str(batch), **archive_on).exit_code == 0
    assert sereno("archive", "verify", "--since", "2990-01-01", **archive_on).exit_code == 0


def test_an_unreachable_storage_marks_no_file(
    sereno: Command, connection: psycopg.Connection, archive_on: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Storage, "get", _unavailable)
    result = sereno("archive", "verify", **archive_on)
    assert result.exit_code == 1
    assert one(connection, "select count(*) from sereno.archive_files where failed_at is not null") == 0


def _unavailable(*_: object) -> tuple[str, int]:
    from sereno.errors import ArchiveUnavailable  # noqa: PLC0415 - only here

    raise ArchiveUnavailable("the archive does not answer")


@pytest.mark.slow
def test_ctrl_c_stops_a_query(database_url: str, tmp_path: Path, archive_on: dict[str, str]) -> None:
    """The query prints its progress, because it has a pseudo-terminal."""
    control, terminal = pty.openpty()
    output = bytearray()
    reader = threading.Thread(target=_read, args=[control, output])
    with WarmProcess(
        [sys.executable, "-c", PROGRAM, "archive", "query", "select sum(hash(i)) from range(1000000000000) t(i)"],
        cwd=tmp_path,
        env=process_environment(SERENO_DATABASE_URL=database_url, **archive_on),
        stdout=terminal,
        stderr=terminal,
    ) as running:
        os.close(terminal)
        reader.start()
        try:
            # The query has printed its progress, so it is running.
            until(lambda: b"%" in output, 60)
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=20) == 130
        finally:
            running.kill()
    reader.join()
    os.close(control)


def _read(terminal: int, output: bytearray) -> None:
    """Read until the process ends. A terminal whose output is not read blocks the writer."""
    with suppress(OSError):
        while part := os.read(terminal, 1000):
            output += part
