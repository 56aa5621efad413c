"""A job that requires a version of its task or a key is claimed only by a session that has it."""

from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from sereno import ConfigurationError, Every, Sereno
from sereno.database.connect import PLANNER
from sereno.jobs import group_store, requirements, transitions
from sereno.jobs.group_store import NewGroup
from sereno.jobs.job import JobOptions, NewJob
from sereno.jobs.queries.why import why
from sereno.jobs.requirements import capabilities_of
from sereno.worker import sessions
from tests.facts import advance, one, state
from tests.jobs.job_steps import Connection, add, decided, do, end, new, past, row, session, take

GRACE = 900.0
NEW = {"versions": {"work": 2}}


def capable(connection: Connection, capabilities: Mapping[str, Any] | None, release: str | None = None) -> int:
    """Return a session with these capabilities."""
    made, _ = do(
        connection,
        sessions.register(
            host="here", pid=1, version="0", queues={"default": 10}, tasks=["work"], lease=86400.0 * 30,
            release=release, capabilities=capabilities,
        ),
    )  # fmt: skip
    return made


def demanding(connection: Connection, requires: bytes = b'{"version":2}', **options: Any) -> int:
    """Enqueue a job with requirements; return its id."""
    chosen: dict[str, Any] = {"queue": "default", "priority": 5} | options
    (job,) = do(
        connection, transitions.enqueue([NewJob("work", b"{}", JobOptions(**chosen).checked(), requires=requires)])
    )
    return job.id


def test_only_a_session_that_meets_the_requirements_claims_a_job(connection: psycopg.Connection) -> None:
    connection.execute(PLANNER)
    table: list[tuple[bytes, dict[str, Any] | None, bool]] = [
        (b'{"version":2}', None, False),
        (b'{"version":2}', {"versions": {"other": 9}}, False),
        (b'{"version":2}', {"versions": {"work": 2}}, True),
        (b'{"version":2}', {"versions": {"work": 3}}, True),
        (b'{"version":3}', {"versions": {"work": 2}}, False),
        (b'{"key":"b"}', {"keys": []}, False),
        (b'{"key":"b"}', {"keys": ["a"]}, False),
        (b'{"key":"b"}', {"keys": ["a", "b"]}, True),
        (b'{"version":2,"key":"b"}', {"versions": {"work": 2}, "keys": ["a"]}, False),
        (b'{"version":2,"key":"b"}', {"versions": {"work": 2}, "keys": ["b"]}, True),
    ]
    wrong = []
    for requires, capabilities, expected in table:
        job = demanding(connection, requires)
        owner = capable(connection, capabilities)
        claimed = [each.id for each in take(connection, owner)]
        if claimed != ([job] if expected else []):
            wrong.append((requires, capabilities, claimed))
        do(connection, transitions.delete([job]))
        connection.execute("delete from sereno.jobs")
    assert wrong == []


def test_jobs_behind_one_that_cannot_be_claimed_are_claimed(connection: psycopg.Connection) -> None:
    left, plain = demanding(connection), add(connection)[0]
    old, new = capable(connection, None), capable(connection, NEW)
    assert [job.id for job in take(connection, old)] == [plain]
    assert [job.id for job in take(connection, new)] == [left]


def test_the_requirements_stay_with_the_job_until_it_is_retried(connection: psycopg.Connection) -> None:
    table = {"succeeded": decided(), "dead": None, "cancelled": None}
    for final in table:
        job = demanding(connection)
        owner = capable(connection, NEW)
        (claimed,) = take(connection, owner)
        if final == "cancelled":
            do(connection, transitions.cancel([job], "not needed"))
        decision = decided() if final == "succeeded" else decided(ValueError("x"), failures=99)
        end(connection, owner, [claimed], decision)
        assert past(connection, job)["requires"] == {"version": 2}, final
        assert do(connection, transitions.requeue([job])) == [job]
        assert row(connection, job)["requires"] == {"version": 2}, final
        do(connection, transitions.delete([job]))


def test_a_job_with_a_unique_key_has_its_requirements(connection: psycopg.Connection) -> None:
    job = demanding(connection, unique_key="one")
    assert row(connection, job)["requires"] == {"version": 2}
    assert demanding(connection, b'{"version":3}', unique_key="one", on_conflict="replace") == job
    assert row(connection, job)["requires"] == {"version": 3}


def test_claims_by_sql_leave_jobs_with_requirements(connection: psycopg.Connection) -> None:
    demanding(connection)
    plain = add(connection)[0]
    owner = one(connection, "select sereno.open_session(array['default'], array['work'])")
    claimed = connection.execute("select id from sereno.claim_jobs(%s, most => 10)", [owner]).fetchall()
    assert claimed == [(plain,)]


def test_a_plain_job_stores_no_requirements(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    async def plain() -> None: ...

    @app.task(version=2)
    async def newer() -> None: ...

    jobs = {plain.enqueue().id: None, newer.enqueue().id: {"version": 2}}
    jobs |= {job.id: {"version": 2} for job in app.enqueue_many([newer.job(), newer.job()])}
    jobs |= {job.id: {"version": 2} for job in app.enqueue_many(newer.job() for _ in range(2))}
    assert dict(connection.execute("select id, requires from sereno.jobs").fetchall()) == jobs
    assert capabilities_of(app.registry, app._keys()) == {"versions": {"newer": 2}, "keys": [], "encrypting": []}


def test_jobs_of_a_schedule_have_the_requirements_of_its_task(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(version=4)
    async def report(day: str = "") -> None: ...

    app.schedules.upsert("plain", report.job(), Every("1d"), overlap="allow")
    app.schedules.upsert("templated", report.job("{date}"), Every("1d"))
    assert connection.execute("select requires from sereno.schedules").fetchall() == [({"version": 4},)] * 2
    app.schedules.run("plain")
    advance(connection, 86400)
    app.schedules.tick()
    made = connection.execute("select requires from sereno.jobs").fetchall()
    assert made == [({"version": 4},)] * 3


def test_a_version_is_a_positive_whole_number(app: Sereno, subtests: pytest.Subtests) -> None:
    wrong: list[Any] = [0, -1, True, "2", 1.5, 10**10, None]
    for version in wrong:
        with subtests.test(version=version), pytest.raises(ConfigurationError, match="version"):
            app.task(version=version, name="work")(_nothing)


def _nothing() -> None: ...


def test_a_job_that_no_worker_could_run_for_the_grace_is_a_dead_letter(connection: psycopg.Connection) -> None:
    job, plain = demanding(connection), add(connection)[0]
    capable(connection, None)
    advance(connection, GRACE - 1)
    assert do(connection, requirements.bury_unmet(GRACE)) == []
    advance(connection, 2)
    buried = do(connection, requirements.bury_unmet(GRACE))
    assert [job_id for job_id, _ in buried] == [job]
    assert state(connection, job) == "dead"
    assert "version" in past(connection, job)["reason"]
    assert state(connection, plain) == "ready"
    assert do(connection, transitions.requeue([job])) == [job]
    assert [each.id for each in take(connection, capable(connection, NEW))] == [plain, job]


def test_a_job_that_became_due_late_has_its_own_grace(connection: psycopg.Connection) -> None:
    capable(connection, None)
    advance(connection, GRACE + 1)
    job = demanding(connection)
    assert do(connection, requirements.bury_unmet(GRACE)) == []
    assert state(connection, job) == "ready"


def test_a_job_that_a_live_or_just_restarted_worker_can_run_is_not_buried(connection: psycopg.Connection) -> None:
    job = demanding(connection)
    capable(connection, None)
    able = capable(connection, NEW)
    advance(connection, GRACE * 3)
    assert do(connection, requirements.bury_unmet(GRACE)) == []
    do(connection, sessions.finish([able], "closed"))
    assert do(connection, requirements.bury_unmet(GRACE)) == []
    advance(connection, GRACE + 1)
    assert [job_id for job_id, _ in do(connection, requirements.bury_unmet(GRACE))] == [job]


def test_after_an_outage_the_grace_starts_with_the_first_worker(connection: psycopg.Connection) -> None:
    job = demanding(connection)
    advance(connection, GRACE * 10)
    capable(connection, None)
    assert do(connection, requirements.bury_unmet(GRACE)) == []
    advance(connection, GRACE + 1)
    assert [job_id for job_id, _ in do(connection, requirements.bury_unmet(GRACE))] == [job]


def test_why_names_what_a_job_waits_for(connection: psycopg.Connection) -> None:
    newer, locked = demanding(connection), demanding(connection, b'{"key":"2026b"}')
    capable(connection, {"versions": {}, "keys": ["2026a"]})
    assert do(connection, why(newer))[0] == (
        "It waits for a worker with version 2 of task work; live workers have version 1."
    )
    assert do(connection, why(locked))[0] == (
        "It waits for a worker with the encryption key 2026b; live workers have the keys 2026a."
    )
    capable(connection, {"versions": {"work": 2}, "keys": ["2026b"]})
    for job in (newer, locked):
        assert "waits for a worker" not in " ".join(do(connection, why(job)))


def test_what_no_worker_can_run_is_found_behind_many_other_jobs(connection: psycopg.Connection) -> None:
    capable(connection, {"versions": {"work": 2}})
    for _ in range(50):
        demanding(connection)
    demanding(connection, b'{"version":3}')
    demanding(connection, b'{"version":4}')
    found = do(connection, requirements.unmet())
    assert [(each.task, each.requires, each.versions) for each in found] == [
        ("work", {"version": 3}, [2]),
        ("work", {"version": 4}, [2]),
    ]
    session(connection, tasks=["work"])
    assert [each.versions for each in do(connection, requirements.unmet())] == [[1, 2], [1, 2]]


def test_what_waits_for_a_job_that_no_worker_can_run_is_continued_or_cancelled(connection: psycopg.Connection) -> None:
    job = demanding(connection)
    made = {on_dead: add(connection, after=[job], on_dead=on_dead)[0] for on_dead in ("wait", "continue", "cancel")}
    grouped = NewJob("work", b"{}", new().options, requires=b'{"version":2}')
    with connection.transaction():
        group = do(connection, group_store.enqueue_group(NewGroup([grouped], new(), "continue")))
    assert group.then is not None
    capable(connection, None)
    advance(connection, GRACE + 1)
    with connection.transaction():
        buried = do(connection, requirements.bury_unmet(GRACE))
    assert len(buried) == 2
    assert {on_dead: state(connection, each) for on_dead, each in made.items()} == {
        "wait": "waiting",
        "continue": "ready",
        "cancel": "cancelled",
    }
    assert state(connection, group.then.id) == "ready"
    assert [past(connection, each)["group_id"] for each, _ in buried] == [None, group.id]
