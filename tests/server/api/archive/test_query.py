"""SQL queries of the archive over HTTP: they read its files within limits, and nothing else of the machine."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sereno import Sereno
from sereno.archive import query as archive_query
from tests.facts import auntil, one
from tests.server.api.archive.archived import OLD_JOBS, archive, fill
from tests.server.api.conftest import Ask

# Never ends: each row is joined with all others.
ENDLESS = "select count(*) from range(1000000000) as a, range(1000000000) as b where hash(a.range) = hash(b.range + 1)"


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[Sereno]:
    """An application that archives into a directory."""
    made = Sereno(database_url, archive_url=f"file://{tmp_path / 'archive'}")
    yield made
    made.close()


@pytest.fixture
def cold(app: Sereno, connection: psycopg.Connection) -> Sereno:
    fill(connection)
    archive(app)
    return app


@pytest.mark.slow
def test_a_query_returns_rows_of_the_archives_files(cold: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    sql = "select task, count(*) as jobs, max(id) as last from jobs group by 1 -- password=hunter2"
    answer = client.post("/archive/query", json={"sql": sql})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"rows": [{"task": "work", "jobs": OLD_JOBS, "last": OLD_JOBS}], "more": False}
    some = client.post("/archive/query", json={"sql": "select id from jobs order by id", "rows": 3}).json()
    assert some == {"rows": [{"id": 1}, {"id": 2}, {"id": 3}], "more": True}
    all_rows = client.post("/archive/query", json={"sql": "select id from jobs", "rows": OLD_JOBS}).json()
    assert (len(all_rows["rows"]), all_rows["more"]) == (OLD_JOBS, False)
    other_time = {"sql": "select * from jobs", "from": "2001-01-01T00:00:00Z", "to": "2001-01-02T00:00:00Z"}
    nothing = client.post("/archive/query", json=other_time)
    assert nothing.status_code == 404
    assert "no verified file of that time" in nothing.json()["detail"]
    lines = connection.execute("select actor, detail from sereno.audit where action = 'archive.query'").fetchall()
    assert len(lines) == 4
    assert lines[0][0].startswith("admin")
    assert "hunter2" not in str(lines[0][1])
    assert lines[3][1]["from"].startswith("2001-01-01")


# Each is refused; {path} is a directory with the file other.csv. Every statement starts a process.
FORBIDDEN = (
    "select * from read_text('{path}/other.csv')",
    "select getenv('AWS_SECRET_ACCESS_KEY') as x",
    # A Python variable of the process, which DuckDB would read as a table.
    "select * from sql",
)
MORE_FORBIDDEN = (
    "select * from read_csv('{path}/other.csv')",
    "select * from '{path}/other.csv'",
    "select * from glob('{path}/*')",
    "select * from read_csv('https://127.0.0.1:1/x.csv')",
    "select * from read_text('/proc/self/environ')",
    "copy (select 1) to '{path}/written.csv'",
    "attach '{path}/written.db'",
    "install httpfs",
    "load httpfs",
    "set enable_external_access = true",
    "set memory_limit = '100GB'",
    "create table x as select 1",
    "select 1; select 2",
    "select * from params",
    "select * from json",
    "pragma database_list",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "statements", [pytest.param(FORBIDDEN, id="some"), pytest.param(MORE_FORBIDDEN, id="more", marks=pytest.mark.slow)]
)
def test_a_query_reads_and_writes_nothing_else(
    cold: Sereno,
    ask: Ask,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    statements: tuple[str, ...],
    subtests: pytest.Subtests,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-in-the-environment")
    (tmp_path / "other.csv").write_text("canary-in-a-file\n1\n")
    client = ask("admin")
    for statement in statements:
        with subtests.test(statement=statement):
            answer = client.post("/archive/query", json={"sql": statement.replace("{path}", str(tmp_path))})
            assert answer.status_code == 422, answer.text
            assert "canary" not in answer.text
            assert "Python Object" not in answer.text
    assert {each.name for each in tmp_path.iterdir()} == {"archive", "other.csv"}


@pytest.mark.slow
def test_a_query_ends_on_its_timeout(cold: Sereno, ask: Ask) -> None:
    client = ask("admin")
    answer = client.post("/archive/query", json={"sql": ENDLESS, "seconds": 1})
    assert answer.status_code == 503
    assert "longer than 1 s" in answer.json()["detail"]
    # No child process remains, and the next query is accepted.
    assert _children() == []
    assert client.post("/archive/query", json={"sql": "select 1 as one", "seconds": 60}).json()["rows"] == [{"one": 1}]


@pytest.mark.slow
def test_a_result_that_is_too_large_is_refused(cold: Sereno, ask: Ask) -> None:
    client = ask("admin")
    for sql in ("select repeat('x', 3000000000) as x", "select repeat('x', 300000000) as x from range(1000)"):
        answer = client.post("/archive/query", json={"sql": sql, "seconds": 60})
        assert answer.status_code in (422, 503), answer.text
    large = "select range as n, repeat('x', 3000000) as x from range(10)"
    found = client.post("/archive/query", json={"sql": large, "seconds": 60}).json()
    assert ([row["n"] for row in found["rows"]], found["more"]) == ([0, 1], True)
    alone = client.post("/archive/query", json={"sql": "select repeat('x', 9000000) as x", "seconds": 60})
    assert alone.json() == {"rows": [{"x": {"not shown": "9,000,002 bytes"}}], "more": False}


@pytest.mark.slow
async def test_queries_run_one_at_a_time(cold: Sereno, ask: Ask) -> None:
    client, other = ask("admin"), ask("admin")
    long = asyncio.to_thread(client.post, "/archive/query", json={"sql": ENDLESS, "seconds": 60})
    running = asyncio.create_task(long)
    (process,) = await auntil(_children)
    answer = await asyncio.to_thread(other.post, "/archive/query", json={"sql": "select 1"})
    assert answer.status_code == 409
    assert "is running" in answer.json()["detail"]
    os.kill(int(process), signal.SIGKILL)
    ended = await running
    assert (ended.status_code, "its process died" in ended.json()["detail"]) == (503, True)
    assert other.post("/archive/query", json={"sql": "select 1 as one", "seconds": 60}).status_code == 200


@pytest.mark.slow
def test_without_the_package_the_error_says_what_to_install(
    cold: Sereno, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duckdb.py").write_text("raise ImportError('not here', name='duckdb')\n")
    monkeypatch.syspath_prepend(tmp_path)
    answer = ask("admin").post("/archive/query", json={"sql": "select 1"})
    assert answer.status_code == 409
    assert "pip install 'sereno[query]'" in answer.json()["detail"]


@pytest.mark.slow
def test_a_missing_directory_is_reported(cold: Sereno, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    answer = ask("admin").post("/archive/query", json={"sql": "select * from jobs"})
    assert answer.status_code == 503
    assert "archive" in answer.json()["detail"]


@pytest.mark.slow
def test_only_admins_query_and_the_response_is_not_stored(
    cold: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    for client in (ask("viewer"), ask("operator"), ask("admin", tenant="ann")):
        assert client.post("/archive/query", json={"sql": "select * from jobs"}).status_code == 403
    assert one(connection, "select count(*) from sereno.audit where action = 'archive.query'") == 0
    # The response is not stored, not even for a repeated Idempotency-Key.
    response = ask("admin").post(
        "/archive/query", json={"sql": "select id from jobs"}, headers={"Idempotency-Key": "k"}
    )
    assert response.status_code == 200
    assert one(connection, "select count(*) from sereno.idempotency_keys") == 0


def test_invalid_archive_queries_are_refused(cold: Sereno, ask: Ask, subtests: pytest.Subtests) -> None:
    client = ask("admin")
    for body in ({"sql": ""}, {"sql": "x" * 20_001}, {"sql": "select 1", "rows": 0}, {}):
        with subtests.test(body=str(body)[:40]):
            assert client.post("/archive/query", json=body).status_code == 422


def _children() -> list[str]:
    """Return the child processes that run queries."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((each / "stat").read_text().rpartition(") ")[2].split()[1])
            words = (each / "cmdline").read_bytes().decode().split("\x00")
        except (OSError, ValueError):
            continue
        if parent == os.getpid() and archive_query.__name__ in words:
            found.append(each.name)
    return found


def rewrite(connection: psycopg.Connection, directory: Path, change: Callable[[Any], Any]) -> None:
    """Change the Parquet file of the old jobs without the archive's knowledge."""
    name = one(
        connection,
        "select object from sereno.archive_files f join sereno.archive_batches b on b.id = f.batch_id "
        "where b.kind = 'jobs'",
    )
    path = directory / "archive" / name
    table = pq.read_table(path)
    pq.write_table(change(table), path)
    connection.execute("update sereno.archive_files set bytes = %s where object = %s", [path.stat().st_size, name])


def with_column(name: str, values: Any) -> Callable[[Any], Any]:
    return lambda table: table.set_column(table.schema.get_field_index(name), name, values)


@pytest.mark.slow
def test_unreadable_values_are_marked_and_the_others_are_shown(
    cold: Sereno, ask: Ask, connection: psycopg.Connection, tmp_path: Path
) -> None:
    """Values that are nested too deeply, too large or no JSON once made the response a 500."""
    texts = ['{"a": [1, "]}:,\\\\\\""]}'] * OLD_JOBS
    texts[1] = '{"a":' * 3000 + '"NaN"' + "}" * 3000
    texts[2] = '{"a": "' + "é" * 3_000_000 + '"}'
    texts[3] = "{no json"
    rewrite(connection, tmp_path, with_column("args", pa.array(texts)))
    client = ask("admin")
    found = client.post("/archive/query", json={"sql": "select id, args, task from jobs order by id"})
    assert found.status_code == 200, found.text[:500]
    rows = found.json()["rows"]
    assert [row["id"] for row in rows] == list(range(1, OLD_JOBS + 1))
    assert {row["task"] for row in rows} == {"work"}
    assert rows[0]["args"] == {"a": [1, ']}:,\\"']}
    assert rows[1]["args"] == {"not shown": "nested more than 200 levels deep"}
    assert rows[2]["args"] == {"not shown": "6,000,008 bytes"}
    assert rows[3]["args"] == "{no json"
    assert rows[4]["args"] == rows[0]["args"]
    large = client.post("/archive/query", json={"sql": "select 1 as a, repeat('x', 3000000) as b, b as c, b as d"})
    assert large.json() == {"rows": [{"not shown": "more than 8,388,608 bytes"}], "more": False}


@pytest.mark.slow
def test_a_text_that_is_not_utf8_is_refused_and_other_columns_work(
    cold: Sereno, ask: Ask, connection: psycopg.Connection, tmp_path: Path
) -> None:
    bad = pa.array([b"\xff\xfe"] * OLD_JOBS, pa.binary())
    column = pa.Array.from_buffers(pa.string(), OLD_JOBS, bad.buffers())
    rewrite(connection, tmp_path, with_column("task", column))
    client = ask("admin")
    refused = client.post("/archive/query", json={"sql": "select * from jobs"})
    assert refused.status_code == 503
    assert "not UTF-8" in refused.json()["detail"]
    found = client.post("/archive/query", json={"sql": "select count(id) as jobs from jobs"})
    assert found.json()["rows"] == [{"jobs": OLD_JOBS}]


def test_members_of_a_row_are_split_without_a_json_parser(subtests: pytest.Subtests) -> None:
    for line in [
        "{}",
        '{"a":1}',
        '{"a":"x,y}","b":[1,{"c":2}],"d":null}',
        '{"a b\\"{":{"x":[[]]},"":[],"e":"\\\\"}',
        '{"q":{"a":1},"r":{"a":[1,2,{"b":3}]}}',
    ]:
        with subtests.test(line=line):
            parts = {json.loads(name): json.loads(value) for name, value, _ in archive_query._members(line)}
            assert parts == json.loads(line)
