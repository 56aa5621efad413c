"""An unreadable row is marked and hides no others: in lists, exports, pages and on the command line."""

import json

import psycopg
import pytest
from click.testing import CliRunner

from sereno import Sereno
from sereno.cli.main import main
from sereno.jobs import operations as jobs
from sereno.schedules import operations as schedules
from sereno.schedules.bulk_write import NOT_SHOWN
from tests.server.api.conftest import Ask, Served

DEPTHS = (260, 900, 3000)
DAILY = {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}


def nested(depth: int) -> str:
    return '{"a": ' * depth + "1" + "}" * depth


@pytest.fixture(scope="module")
def unreadable(shared_app: Sereno, shared_connection: psycopg.Connection) -> list[int]:
    """Insert unreadable schedules, jobs, steps, events and recipients; return a readable job's id and theirs."""

    @shared_app.task
    def work(a: int = 0) -> None: ...

    with shared_connection.transaction():
        # An earlier version stored such rows; the constraints refuse them now.
        for table in ("jobs", "schedules", "events", "recipients", "steps"):
            found = shared_connection.execute(
                "select conname from pg_constraint where conrelid = %s::regclass and contype = 'c'", [f"sereno.{table}"]
            )
            for (name,) in found.fetchall():
                shared_connection.execute(f'alter table sereno.{table} drop constraint "{name}"'.encode())
        shared_connection.execute("alter domain sereno.bounded_json drop constraint nested_at_most_100_deep")
    ids = [work.enqueue(a=1).id]
    rule = json.dumps(DAILY)
    for depth in DEPTHS:
        key = f"deep:{depth}"
        shared_connection.execute(
            "insert into sereno.schedules (key, task, rule, args, next_run_at) "
            "values (%s, 'work', %s, %s, now() + '1h')",
            [key, rule, nested(depth)],
        )
        made = shared_connection.execute(
            "insert into sereno.jobs (task, state, ready_seq, args) values ('work', 'ready', 1, %s) returning id",
            [nested(depth)],
        ).fetchone()
        assert made is not None
        ids.append(made[0])
        shared_connection.execute(
            "insert into sereno.steps (job_id, name, attempt, result) values (%s, 's', 1, %s)", [made[0], nested(depth)]
        )
        shared_connection.execute(
            "insert into sereno.events (type, key, payload, due_at, channels) values ('t', %s, %s, now(), '{}')",
            [key, nested(depth)],
        )
        shared_connection.execute("insert into sereno.recipients (key, data) values (%s, %s)", [key, nested(depth)])
    shared_connection.execute(
        "insert into sereno.schedules (key, task, rule, args, next_run_at) "
        "values ('plain', 'work', %s, '{\"a\": 1}', now() + '1h')",
        [rule],
    )
    shared_connection.commit()
    return ids


@pytest.mark.slow
def test_schedules_that_cannot_be_shown_hide_no_others(
    unreadable: list[int], shared_ask: Ask, subtests: pytest.Subtests
) -> None:
    for role in ("viewer", "operator"):
        with subtests.test(role=role):
            client = shared_ask(role)
            for path in ("/schedules", "/schedules?soonest=true", "/schedules?q=task:work", "/schedules/export"):
                answer = client.get(path)
                assert answer.status_code == 200, (path, answer.text)
                found = {each["key"]: each["args"] for each in answer.json()["items"]}
                assert found["plain"] == {"a": 1}, path
                assert all(NOT_SHOWN in found[f"deep:{depth}"] for depth in DEPTHS), path
            for depth in DEPTHS:
                assert NOT_SHOWN in client.get(f"/schedules/deep:{depth}").json()["schedule"]["args"]


@pytest.mark.slow
def test_jobs_events_and_recipients_that_cannot_be_shown_hide_no_others(
    unreadable: list[int], shared_ask: Ask, shared_connection: psycopg.Connection
) -> None:
    viewer, operator = shared_ask("viewer"), shared_ask("operator")
    assert {each["id"] for each in viewer.get("/jobs").json()["items"]} == set(unreadable)
    events = [each["id"] for each in viewer.get("/events").json()["items"]]
    assert len(events) == len(DEPTHS)
    for client in (viewer, operator):
        for job in unreadable[1:]:
            found = client.get(f"/jobs/{job}").json()
            assert NOT_SHOWN in found["job"]["args"], job
            assert NOT_SHOWN in found["steps"][0]["result"], job
        for event in events:
            assert NOT_SHOWN in client.get(f"/events/{event}").json()["event"]["payload"], event
        for depth in DEPTHS:
            found = client.get(f"/recipients/deep:{depth}").json()
            assert NOT_SHOWN in found["recipient"]["data"], depth
        assert client.get("/recipients").status_code == 200
    for job in unreadable[1:]:
        assert NOT_SHOWN in operator.post(f"/jobs/{job}/reveal").json()["arguments"], job


@pytest.mark.slow
def test_pages_with_unreadable_rows_are_shown(unreadable: list[int], shared_ask: Ask, shared_served: Served) -> None:
    admin = shared_ask("admin")
    events = [each["id"] for each in admin.get("/events").json()["items"]]
    paths = ["/schedules", "/schedule?key=plain", "/jobs", "/notifications", "/recipients"]
    paths += [f"/jobs?job={job}" for job in unreadable] + [f"/event?id={event}" for event in events]
    paths += [f"/{page}?key=deep:{depth}" for page in ("schedule", "recipient") for depth in DEPTHS]
    for path in paths:
        answer = admin.get(f"{shared_served.url}{path}")
        assert answer.status_code == 200, (path, answer.status_code)


@pytest.mark.slow
def test_the_command_line_accepts_unreadable_rows(unreadable: list[int], shared_database_url: str) -> None:
    runner = CliRunner(env={"SERENO_DATABASE_URL": shared_database_url})
    for command in (
        ["schedule", "list"],
        ["schedule", "list", "-o", "json"],
        ["schedule", "export"],
        ["job", "list"],
        *(["job", "show", str(job)] for job in unreadable),
        *(["schedule", "show", f"deep:{depth}"] for depth in DEPTHS),
    ):
        result = runner.invoke(main, command)
        assert result.exit_code == 0, (command, result.output, result.exception)


def test_unreadable_rows_are_neither_imported_nor_run(unreadable: list[int], shared_ask: Ask) -> None:
    """An export with a hidden value is not imported, and no job is created from an unreadable row."""
    admin = shared_ask("admin")
    exported = admin.get("/schedules/export").json()["items"]
    imported = admin.post("/schedules/import", json={"schedules": exported}, params={"unchecked": True}).json()
    assert (len(imported["refused"]), imported["changed"] + imported["unchanged"]) == (len(DEPTHS), 1)
    assert "hidden in the export" in imported["refused"][0]["problem"]
    assert admin.post("/schedules/deep:3000/run").status_code == 422


@pytest.mark.slow
def test_large_arguments_of_schedules_are_not_part_of_a_list(app: Sereno, ask: Ask) -> None:
    """A list shows only their size; the schedule and an export contain them, and a page of an export is bounded."""

    @app.task
    def work(text: str) -> None: ...

    admin = ask("admin")
    text = "x" * 1_000_000
    for number in range(12):
        body = {"task": "work", "args": {"text": text}, "when": DAILY}
        assert admin.put(f"/schedules/k{number:02}", json=body).status_code == 200
    listed = admin.get("/schedules")
    assert len(listed.content) < 100_000
    assert all("bytes" in each["args"][NOT_SHOWN] for each in listed.json()["items"])
    assert admin.get("/schedules/k00").json()["schedule"]["args"] == {"text": text}
    keys: list[str] = []
    after = ""
    while True:
        page = admin.get("/schedules/export", params={"after": after, "limit": 5}).json()
        keys += [each["key"] for each in page["items"]]
        assert all(each["args"] == {"text": text} for each in page["items"])
        if page["next"] is None:
            break
        after = page["next"]
    assert keys == [f"k{number:02}" for number in range(12)]


def test_the_library_marks_unreadable_rows_like_the_api(unreadable: list[int], shared_app: Sereno) -> None:
    assert NOT_SHOWN in shared_app.database.run(jobs.show(unreadable[-1])).job.args
    assert NOT_SHOWN in shared_app.database.run(schedules.show("deep:900")).schedule.args
