"""A job has the same keys whether it is enqueued by Python, by SQL or by a schedule."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sereno import Dead, Every, Limit, Rate, Sereno
from sereno.jobs import transitions
from sereno.jobs.job import JobOptions, NewJob
from sereno.jobs.keys import keys_of
from sereno.jobs.limits import store as limits
from sereno.jobs.task import TaskDefinition
from sereno.jobs.task_handle import Task
from tests.facts import advance, one
from tests.jobs.job_steps import Connection, do, line
from tests.jobs.limits.lane_steps import Claimer

AnyTask = Task[..., None]


@pytest.fixture
def limited(app: Sereno) -> AnyTask:
    """Declare a task with every kind of key, in a queue that also has keys."""
    app.queue("q", concurrency=[Limit(9), Limit(5, key="{tenant}/{queue}", name="a.queue")], fair_key="queue-{tenant}")

    @app.task(
        name="limited",
        queue="q",
        concurrency=[Limit(2, key="{tenant}:{account}"), Limit(3, key="{{task}}{", name="Z")],
        rate=Rate(100, per="1m", key="{flag}|{größe}", name="é", units="{pages}"),
        fair_key="{tenant}",
        order_key="{queue}'{account}\"{number}\\",
        dead_blocks=True,
    )
    def limited(
        account: str | None = "home",
        number: int = 7,
        flag: bool = True,
        größe: str = "{tenant}",  # noqa: PLC2401 - non-ASCII names are allowed
        pages: int = 2,
    ) -> None: ...

    @app.task(name="fair", queue="q")
    def fair(account: str | None = "home") -> None: ...

    @app.task(name="plain")
    def plain(account: str | None = "home") -> None: ...

    with psycopg.connect(app.url, autocommit=True) as connection:
        do(connection, limits.declare(app.registry, "test"))
    return limited


@pytest.fixture
def opened(app: Sereno, limited: AnyTask) -> Iterator[Connection]:
    with line(app.url) as connection:
        yield connection


def keys_by_python(app: Sereno, task: TaskDefinition, queue: str, tenant: str | None, raw: bytes) -> Any:
    found = keys_of(task, app.registry.rules(task, queue), JobOptions(queue=queue, tenant=tenant), raw)
    return None if found is None else json.loads(found)


def keys_by_sql(connection: Connection, task: str, queue: str, tenant: str | None, raw: bytes) -> Any:
    return one(connection, "select sereno.keys_for(%s, %s, %s, %s::jsonb)", task, queue, tenant, raw.decode())


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12) | st.text(
    "{}\\'\"tenatask ", max_size=14
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "account": texts | st.none(),
        "number": st.integers(-(2**63), 2**63),
        "flag": st.booleans(),
        "größe": texts,
        "pages": st.integers(-3, 3_000_000),
    },
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tenant=texts | st.none(),
    queue=st.sampled_from(["q", "other"]),
    given_arguments=arguments,
    name=st.sampled_from(["limited", "fair", "plain"]),
)
def test_sql_and_python_build_the_same_keys(
    app: Sereno, opened: Connection, tenant: str | None, queue: str, given_arguments: dict[str, Any], name: str
) -> None:
    task = app.registry.find(name)
    accepted = {name_: value for name_, value in given_arguments.items() if name_ in task.arguments.names}
    raw = task.arguments.encode((), accepted, 100_000)
    assert keys_by_sql(opened, name, queue, tenant, raw) == keys_by_python(app, task, queue, tenant, raw)


def test_a_limit_that_queue_and_task_both_name_is_the_same_for_both(app: Sereno, connection: Connection) -> None:
    app.queue("both", concurrency=Limit(2, key="{tenant}", name="shared"))

    @app.task(name="both", queue="both", concurrency=Limit(2, key="{account}", name="shared"))
    def both(account: str) -> None: ...

    do(connection, limits.declare(app.registry, "test"))
    raw = b'{"account": "a"}'
    python = keys_by_python(app, both.definition, "both", "t", raw)
    assert keys_by_sql(connection, "both", "both", "t", raw) == python


def test_a_task_without_rules_has_no_keys(opened: Connection) -> None:
    assert keys_by_sql(opened, "unknown", "unknown", None, b"{}") is None


@pytest.mark.parametrize("tenant", [None, "t1", "{account}"])
def test_python_and_sql_enqueue_into_the_same_lane(opened: Connection, limited: AnyTask, tenant: str | None) -> None:
    by_python = limited.using(tenant=tenant).enqueue(account="{a}'\\", number=3)
    raw = json.dumps({"account": "{a}'\\", "number": 3})
    sql = "select sereno.enqueue('limited', %s::jsonb, queue => 'q', tenant => %s, unique_key => %s)"
    by_sql = [one(opened, sql, raw, tenant, unique) for unique in (None, "u")]
    rows = opened.execute("select id, keys, lane, order_id from sereno.jobs order by id").fetchall()
    assert [row[0] for row in rows] == [by_python.id, *by_sql]
    assert rows[0][1:] == rows[1][1:] == rows[2][1:]
    assert rows[0][2] is not None
    assert rows[0][3] is not None


@pytest.mark.slow
@pytest.mark.parametrize("unique", [None, "once-{planned_at}"])
@pytest.mark.parametrize("account", ["a", "{planned_at}"])
def test_the_job_of_a_schedule_has_the_keys_of_its_task(
    app: Sereno, opened: Connection, limited: AnyTask, unique: str | None, account: str
) -> None:
    app.schedules.upsert("s", limited.using(tenant="t1", unique_key=unique).job(account=account), Every("1h"))
    advance(opened, 3601)
    assert app.schedules.tick().fires == 1
    row = opened.execute("select args, keys, lane, order_id from sereno.jobs").fetchone()
    assert row is not None
    args, keys, lane, order_id = row
    assert keys == keys_by_python(app, limited.definition, "q", "t1", json.dumps(args).encode())
    assert lane == one(opened, "select sereno.lane_of('q', %s::jsonb)", json.dumps(keys))
    assert order_id == one(opened, "select sereno.order_of('q', %s::jsonb)", json.dumps(keys))


def test_a_dead_job_that_is_retried_has_its_keys_and_its_lane(opened: Connection, limited: AnyTask) -> None:
    job = limited.using(tenant="t1").enqueue(account="a")
    query = "select keys, lane, order_id, queue from sereno.jobs where id = %s"
    before = opened.execute(query, [job.id]).fetchone()
    claimer = Claimer(opened, tasks=["limited"], queue="q")
    claimer.wake()
    claimer.finish(claimer.claim().jobs, Dead("no"))
    assert one(opened, "select keys from sereno.history where id = %s and state = 'dead'", job.id) == (before or [0])[0]
    assert do(opened, transitions.requeue([job.id])) == [job.id]
    assert opened.execute(query, [job.id]).fetchone() == before
    advance(opened, 61)
    assert claimer.take_all() == [job.id]


def test_a_job_that_is_replaced_has_the_keys_of_the_new_one(opened: Connection, limited: AnyTask) -> None:
    once = limited.using(tenant="t1", unique_key="u", on_conflict="replace")
    first, second = once.enqueue(account="a"), once.enqueue(account="b")
    assert first.id == second.id
    other = limited.using(tenant="t1").enqueue(account="b")
    rows = opened.execute("select keys, lane, order_id from sereno.jobs order by id").fetchall()
    assert len(rows) == 2
    assert rows[0] == rows[1]
    assert rows[0][0]["order"] == "q'b\"7\\"
    claimer = Claimer(opened, tasks=["limited"], queue="q")
    assert claimer.take_all() == [first.id]
    assert other.id > first.id


def test_a_job_whose_replacement_has_no_limits_is_plain(opened: Connection, limited: AnyTask) -> None:
    """A replaced job keeps none of its old keys."""
    once = limited.using(unique_key="u", on_conflict="replace")
    once.enqueue()
    do(opened, transitions.enqueue([NewJob("limited", b"{}", once.job().options)]))
    assert opened.execute("select keys, lane, order_id from sereno.jobs").fetchall() == [(None, None, None)]
    once.enqueue()
    assert one(opened, "select count(*) from sereno.jobs where lane is not null and order_id is not null") == 1
