"""The archive over HTTP: users of all tenants read it, admins run it; an archived job is shown with its location."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from tests.facts import advance, one
from tests.server.api.archive.archived import OLD_JOBS, archive, export, fill, move, old_delivery
from tests.server.api.conftest import Ask

RESTORE = "Restore it: sereno archive restore"


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[Sereno]:
    """An application that archives into a directory."""
    made = Sereno(database_url, archive_url=f"file://{tmp_path / 'archive'}", keep_deliveries_days=30)
    yield made
    made.close()


@pytest.mark.slow
def test_status_batches_and_files_are_shown(ask: Ask, app: Sereno, connection: psycopg.Connection) -> None:
    client = ask("viewer")
    empty = client.get("/archive").json()
    assert (empty["on"], empty["totals"]["verified_rows"], empty["failures"]) == (True, 0, [])
    day = fill(connection)
    move(app)
    waiting = client.get("/archive").json()
    assert (waiting["totals"]["waiting_batches"], waiting["totals"]["verified_files"]) == (1, 0)
    assert export(app) == []
    status = client.get("/archive").json()
    assert (status["totals"]["verified_rows"], status["totals"]["verified_files"]) == (OLD_JOBS, 1)
    assert status["totals"]["next_drop_at"] is not None
    (line,) = client.get("/archive/batches", params={"kind": "jobs", "state": "verified"}).json()["items"]
    assert (line["rows"], line["files"], line["verified_files"], line["state"]) == (OLD_JOBS, 1, 1, "verified")
    assert client.get("/archive/batches", params={"kind": "logs"}).json()["items"] == []
    found = client.get(f"/archive/batches/{line['id']}").json()
    (file,) = found["files"]
    assert file["object"].endswith(".parquet")
    assert len(file["sha256"]) == 64
    assert found["about"]["key_columns"] == ["id"]
    (entry,) = client.get("/archive/days", params={"first": str(day), "last": str(day)}).json()["items"]
    assert (entry["day"], entry["rows"], entry["state"]) == (str(day), OLD_JOBS, "archived")


@pytest.mark.slow
def test_batches_are_listed_in_pages(ask: Ask, app: Sereno, connection: psycopg.Connection) -> None:
    for number in range(3):
        fill(connection, 40 + number, 2, first=1 + 2 * number)
    move(app)
    client = ask("viewer")
    first = client.get("/archive/batches", params={"limit": 2}).json()
    rest = client.get("/archive/batches", params={"limit": 2, "before": first["next"]}).json()
    assert len(first["items"]) == 2
    assert (len(rest["items"]), rest["next"]) == (1, None)
    assert len({each["id"] for each in (*first["items"], *rest["items"])}) == 3


@pytest.mark.slow
def test_a_file_that_could_not_be_verified_is_shown(
    ask: Ask, app: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    fill(connection)
    move(app)
    # A file blocks the path of the archive's directory.
    (tmp_path / "archive").write_text("in the way")
    assert export(app)
    client = ask("viewer")
    status = client.get("/archive").json()
    (failed,) = status["failures"]
    assert (failed["kind"], failed["held"], status["totals"]["failures"]) == ("jobs", True, 1)
    assert "could not" in failed["error"]
    (line,) = client.get("/archive/batches", params={"state": "failed"}).json()["items"]
    assert line["failed_files"] == 1
    kinds = {each["kind"]: each for each in client.get("/attention").json()["items"]}
    assert kinds["archive.unverified"]["level"] == "bad"


@pytest.mark.slow
def test_an_archived_job_gives_its_location_and_how_to_restore_it(
    ask: Ask, app: Sereno, connection: psycopg.Connection
) -> None:
    fill(connection)
    move(app)
    client, anns = ask("viewer"), ask("viewer", tenant="ann")
    held = client.get("/jobs/7")
    assert held.status_code == 404
    assert held.json()["detail"].startswith("job 7 is in the archive: batch ")
    assert f"{RESTORE} job 7" in held.json()["detail"]
    assert export(app) == []
    advance(connection, 8 * 86400)
    assert export(app) == []
    assert one(connection, "select count(*) from sereno.archive_batches where dropped_at is not null") == 1
    for path in ("/jobs/7", "/jobs/7/why"):
        problem = client.get(path).json()
        assert problem["detail"].startswith("job 7 is not here; it may be in the archive: batch ")
        assert ".parquet" in problem["detail"]
    (place,) = client.get("/archive/whereabouts", params={"kind": "jobs", "id": 7}).json()["items"]
    assert (place["held"], place["state"]) == (False, "verified")
    # A tenant's user gets the same message as for a job that never existed.
    assert anns.get("/jobs/7").json()["detail"] == "there is no job 7, or you have no access to it"
    assert client.get("/jobs/7000").json()["detail"] == "there is no job 7000, or you have no access to it"


@pytest.mark.slow
def test_an_archived_delivery_gives_its_location(ask: Ask, app: Sereno, connection: psycopg.Connection) -> None:
    number = old_delivery(connection)
    archive(app)
    answer = ask("viewer").get(f"/deliveries/{number}")
    assert answer.status_code == 404
    assert answer.json()["detail"].startswith(f"delivery {number} is in the archive: batch ")
    assert f"{RESTORE} delivery {number}" in answer.json()["detail"]
    theirs = ask("viewer", tenant="ann").get(f"/deliveries/{number}")
    assert theirs.json()["detail"] == f"there is no delivery {number}, or you have no access to it"


def test_a_run_enqueues_both_cycles_once(ask: Ask, app: Sereno, connection: psycopg.Connection) -> None:
    client = ask("admin")
    began = client.post("/archive/run")
    assert began.status_code == 202
    assert client.post("/archive/run").json() == began.json()
    made: dict[str, int] = dict(connection.execute("select task, id from sereno.jobs").fetchall())
    assert made == {f"sereno.archive_{name}": number for name, number in began.json().items()}
    assert one(connection, "select count(*) from sereno.audit where action = 'job.enqueue'") == 4
    assert ask("operator").post("/archive/run").status_code == 403


def test_invalid_archive_requests_are_refused(ask: Ask) -> None:
    client = ask("viewer")
    assert client.get("/archive/batches/12").status_code == 404
    refused: list[tuple[str, dict[str, str | int]]] = [
        ("/archive/batches", {"state": "lost"}),
        ("/archive/batches", {"kind": "x" * 1000}),
        ("/archive/days", {"first": "2026-01-01"}),
        ("/archive/days", {"first": "1900-01-01", "last": "2026-01-01"}),
        ("/archive/whereabouts", {"kind": "fires", "id": 1}),
        ("/archive/whereabouts", {"kind": "jobs", "id": -1}),
        ("/archive/whereabouts", {"kind": "jobs", "id": 2**63}),
    ]
    for path, wrong in refused:
        assert client.get(path, params=wrong).status_code == 422, (path, wrong)
    assert client.get("/archive/batches", params={"kind": "a\x00b"}).status_code == 422


class TestWithoutArchive:
    """No archive is configured."""

    @pytest.fixture
    def app(self, database_url: str) -> Iterator[Sereno]:
        made = Sereno(database_url)
        yield made
        made.close()

    def test_a_run_is_refused(self, ask: Ask) -> None:
        client = ask("admin")
        assert client.get("/archive").json()["on"] is False
        refused = client.post("/archive/run")
        assert refused.status_code == 409
        assert "SERENO_ARCHIVE_URL" in refused.json()["detail"]
