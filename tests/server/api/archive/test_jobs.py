"""Long operations on the archive over HTTP: a worker runs them, and their results and audit entries can be read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.database.statement import queries
from sereno.worker.worker import Worker
from tests.facts import advance, auntil, one, state
from tests.procedures.conftest import run
from tests.server.api.archive.archived import OLD_JOBS, archive, fill
from tests.server.api.conftest import Ask

DAY = 86400
WAITING = (
    "select count(*) from pg_locks where locktype = 'advisory' and not granted "
    "and database = (select oid from pg_database where datname = current_database())"
)


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[Sereno]:
    """An application that archives into a directory."""
    made = Sereno(database_url, archive_url=f"file://{tmp_path / 'archive'}")
    yield made
    made.close()


@pytest.fixture
def cold(app: Sereno, connection: psycopg.Connection) -> Sereno:
    """Jobs of an old day exist only in an archive file; new jobs cannot get their ids."""
    connection.execute("select setval('sereno.jobs_id_seq', 1000)")
    fill(connection)
    archive(app)
    advance(connection, 8 * DAY)
    archive(app)
    assert one(connection, "select count(*) from sereno.archive_batches where dropped_at is not null") == 1
    return app


async def work(app: Sereno, connection: psycopg.Connection, client: httpx.Client, path: str, body: Any) -> Any:
    """Send the request, let a worker do it, and return the result."""
    started = start(client, path, body)
    assert progress(client, started)["state"] in ("ready", "scheduled")
    await run(app, connection, started["job"])
    return progress(client, started)


def start(client: httpx.Client, path: str, body: Any) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"work/{answer.json()['job']}"
    return answer.json()


def progress(client: httpx.Client, started: Any) -> Any:
    return client.get(started["progress"]).json()


@pytest.mark.slow
async def test_files_are_verified(cold: Sereno, ask: Ask, connection: psycopg.Connection, tmp_path: Path) -> None:
    client = ask("admin")
    sound = await work(cold, connection, client, "/archive/verify", {})
    assert (sound["what"], sound["state"], sound["error"]) == ("verify", "succeeded", None)
    assert sound["requested_by"].startswith("admin")
    assert (sound["result"]["files"], sound["result"]["rows"], sound["result"]["problems"]) == (1, OLD_JOBS, [])
    (file,) = (tmp_path / "archive").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    broken = (await work(cold, connection, client, "/archive/verify", {"sample": 5}))["result"]
    assert (broken["files"], broken["broken"], broken["problems_in_all"]) == (1, 1, 1)
    assert file.name in broken["problems"][0]
    assert one(connection, "select count(*) from sereno.audit where action = 'archive.verified'") == 2
    assert client.get("/archive").json()["totals"]["failures"] == 1


@pytest.mark.slow
async def test_a_restore_has_a_dry_run(cold: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    request = {"kind": "jobs", "ids": [7, "8", 7, 7000]}
    tried = await work(cold, connection, client, "/archive/restore", request | {"dry_run": True})
    assert tried["result"] == {"kind": "jobs", "dry_run": True, "found": 2}
    assert client.get("/jobs/7").status_code == 404
    done = await work(cold, connection, client, "/archive/restore", request | {"for": "7d"})
    assert (done["result"]["found"], done["result"]["restored"], done["result"]["present"]) == (2, 2, 0)
    assert client.get("/jobs/7").json()["job"]["tenant"] == "ann"
    assert client.get("/jobs/9").status_code == 404
    (line,) = connection.execute("select actor, detail from sereno.audit where action = 'archive.restore'").fetchall()
    assert line[0] == done["requested_by"]
    assert (line[1]["count"], line[1]["seconds"], line[1]["ids"]) == (2, 7 * DAY, ["7", "8", "7000"])
    again = await work(cold, connection, client, "/archive/restore", request)
    assert (again["result"]["restored"], again["result"]["present"]) == (0, 2)


@pytest.mark.slow
async def test_a_restore_of_many_rows_needs_a_confirmation(
    cold: Sereno, ask: Ask, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sereno.archive.restore.MOST", OLD_JOBS - 1)
    client, span = ask("admin"), {"kind": "jobs", "from": "2000-01-01T00:00:00Z"}
    refused = await work(cold, connection, client, "/archive/restore", span)
    assert (refused["state"], refused["result"]) == ("dead", None)
    assert "confirm with all" in refused["error"]
    assert client.get("/jobs/7").status_code == 404
    done = await work(cold, connection, client, "/archive/restore", span | {"all": True})
    assert done["result"]["restored"] == OLD_JOBS


@pytest.mark.slow
async def test_an_export_returns_its_path(
    cold: Sereno, ask: Ask, connection: psycopg.Connection, tmp_path: Path
) -> None:
    client = ask("admin")
    done = await work(cold, connection, client, "/archive/export", {"kind": "jobs", "form": "csv"})
    result = done["result"]
    assert (result["rows"], result["place"]) == (OLD_JOBS, f"file://{tmp_path / 'archive'}")
    assert result["object"] == f"extracts/jobs-{done['job']}.csv"
    file = tmp_path / "archive" / result["object"]
    assert (len(file.read_text().splitlines()), file.stat().st_size) == (OLD_JOBS + 1, result["bytes"])
    assert (tmp_path / "archive").stat().st_mode & 0o077 == 0, "other accounts can read the directory"
    assert one(connection, "select count(*) from sereno.audit where action = 'archive.extracted'") == 1
    # The export is a file of the archive itself, not an unknown one.
    verified = await work(cold, connection, client, "/archive/verify", {})
    assert (verified["result"]["unknown"], verified["result"]["unknown_objects"]) == (0, [])
    empty = {"kind": "jobs", "from": "2001-01-01T00:00:00Z", "to": "2001-01-02T00:00:00Z"}
    nothing = await work(cold, connection, client, "/archive/export", empty)
    assert nothing["result"] == {"kind": "jobs", "rows": 0, "object": None}


@pytest.fixture
def two_days(app: Sereno, connection: psycopg.Connection) -> Sereno:
    """Ten jobs in two batches."""
    connection.execute("select setval('sereno.jobs_id_seq', 1000)")
    for number in range(2):
        fill(connection, 40 + number, 5, first=1 + 5 * number)
    archive(app)
    return app


@pytest.mark.slow
async def test_a_cancelled_job_stops_between_two_files(
    two_days: Sereno, ask: Ask, connection: psycopg.Connection
) -> None:
    client = ask("admin")
    job = client.post("/archive/restore", json={"kind": "jobs", "from": "2000-01-01T00:00:00Z"}).json()["job"]
    async with two_days.working() as worker:
        with connection.transaction():
            # The restore waits for our lock, in the transaction of its first file.
            connection.execute(queries("archive/restore_store")["one_at_a_time"].encode())
            await auntil(lambda: one(connection, WAITING))
            assert client.post("/jobs/cancel", json={"ids": [job]}).json()["stopping"] == [job]
            await auntil(lambda: _is_cancel_requested(worker, job))
        await auntil(lambda: state(connection, job) == "cancelled")
    stopped = client.get(f"/archive/work/{job}").json()
    assert (stopped["state"], stopped["result"]) == ("cancelled", None)
    assert one(connection, "select count(*) from sereno.restored") == 5


@pytest.mark.slow
def test_a_repeated_request_is_one_job(cold: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    client, body = ask("admin"), {"kind": "jobs", "ids": [7]}
    first, second = (client.post("/archive/restore", json=body).json() for _ in range(2))
    assert (first["created"], second["created"], first["job"]) == (True, False, second["job"])
    other = client.post("/archive/restore", json=body | {"ids": [8]}).json()
    assert other["job"] != first["job"]
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.archive_restore'") == 2


@pytest.mark.slow
def test_invalid_archive_jobs_are_refused_at_once(cold: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("restore", {"kind": "jobs"}, "from and to"),
        ("restore", {"kind": "jobs", "ids": ["x"]}, "is a number"),
        ("restore", {"kind": "jobs", "ids": [1], "from": "2026-01-01T00:00:00Z"}, "not both"),
        ("restore", {"kind": "attempts", "ids": [1]}, "it has jobs"),
        ("restore", {"kind": "a\x00b", "ids": [1]}, ""),
        ("restore", {"kind": "jobs", "ids": [1], "for": "0s"}, ""),
        ("restore", {"kind": "jobs", "ids": [1], "for": "20y"}, ""),
        ("restore", {"kind": "jobs", "ids": []}, ""),
        ("restore", {"kind": "jobs", "from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "before it begins"),
        ("export", {"kind": "../../etc/passwd"}, "the archive has no rows of"),
        ("export", {"kind": "jobs", "form": "exe"}, ""),
        ("export", {"kind": "jobs", "from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "before it begins"),
        ("verify", {"sample": 0}, ""),
        ("verify", {"since": "yesterday"}, ""),
    ]
    for path, body, words in refused:
        answer = client.post(f"/archive/{path}", json=body)
        assert answer.status_code == 422, (path, body, answer.text)
        assert words in answer.json()["detail"], (path, body, answer.text)
    assert one(connection, "select count(*) from sereno.jobs") == 0


@pytest.mark.slow
def test_only_jobs_of_the_archive_are_shown(cold: Sereno, ask: Ask) -> None:
    @cold.task
    def work(text: str) -> None: ...

    job = work.enqueue("x").id
    for number in (job, 7, 7000):
        assert ask("viewer").get(f"/archive/work/{number}").status_code == 404


@pytest.mark.slow
def test_roles_for_archive_jobs(cold: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    job = ask("admin").post("/archive/verify").json()["job"]
    assert ask("viewer").get(f"/archive/work/{job}").json()["what"] == "verify"
    for client in (ask("viewer"), ask("operator"), ask("admin", tenant="ann")):
        for path, body in (("verify", {}), ("restore", {"kind": "jobs", "ids": [7]}), ("export", {"kind": "jobs"})):
            assert client.post(f"/archive/{path}", json=body).status_code == 403
    assert ask("admin", tenant="ann").get(f"/archive/work/{job}").status_code == 403
    # The jobs cannot be enqueued like other jobs, either.
    made = ask("admin").post("/jobs", json={"task": "sereno.archive_restore", "arguments": {}})
    assert made.status_code == 403
    assert one(connection, "select count(*) from sereno.jobs") == 1


class TestWithoutArchive:
    """No archive is configured, and nothing was archived."""

    @pytest.fixture
    def app(self, database_url: str) -> Iterator[Sereno]:
        made = Sereno(database_url)
        yield made
        made.close()

    def test_operations_are_refused(self, ask: Ask) -> None:
        client = ask("admin")
        for path, body in (("verify", {}), ("restore", {"kind": "jobs", "ids": [7]}), ("export", {"kind": "jobs"})):
            refused = client.post(f"/archive/{path}", json=body)
            assert refused.status_code == 409, refused.text
            assert "SERENO_ARCHIVE_URL" in refused.json()["detail"]


def _is_cancel_requested(worker: Worker, job: int) -> bool:
    running = worker.executor.running.get(job)
    return running is not None and running.context is not None and running.context.cancel_requested
