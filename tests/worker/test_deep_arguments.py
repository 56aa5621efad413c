"""Arguments are nested at most 100 deep; a job that cannot be read becomes dead, and jobs claimed with it run."""

from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from sereno import InvalidArguments, Limit, Sereno, in_app
from sereno.database.json_values import DEEPEST, is_too_deep
from sereno.database.statement import run
from tests.facts import auntil, one, state

OTHERS = 20
# Deeper than Python's JSON decoders accept.
TOO_DEEP_FOR_PYTHON = 11_000


@dataclass
class Fact:
    value: Any


def nested(depth: int) -> Any:
    """Return lists nested to this depth."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def as_json(depth: int) -> str:
    """Return JSON arguments of this depth; the object is the first level."""
    return '{"value": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"


def allow_any_depth(connection: psycopg.Connection) -> None:
    """Drop the check, as in a table from before it was introduced."""
    connection.execute("alter domain sereno.bounded_json drop constraint nested_at_most_100_deep")


@pytest.mark.slow
def test_the_library_refuses_arguments_nested_too_deep(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work(value: Any) -> None: ...

    accepted = work.enqueue(nested(DEEPEST - 1))
    assert state(connection, accepted.id) == "ready"
    for depth in (DEEPEST, 900, 100_000):
        with pytest.raises(InvalidArguments, match=r"nested more than 100 deep|not storable as JSON"):
            work.enqueue(nested(depth))
    assert one(connection, "select count(*) from sereno.jobs") == 1


WRITES = {
    "enqueue": "select sereno.enqueue('work', %s::jsonb)",
    "unique": "select sereno.enqueue('work', %s::jsonb, unique_key => 'x')",
    "table": "insert into sereno.jobs (task, state, ready_seq, args) values ('work', 'ready', 1, %s::jsonb)",
    "schedule": "select sereno.schedule('s', 'work', every => '1 minute', args => %s::jsonb)",
    "event": "select sereno.notify('bare', %s::jsonb)",
}


def test_sql_refuses_arguments_nested_too_deep(
    app: Sereno, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    app.event("bare", Fact, channels=[in_app])
    run(connection, app.notifications.declare())
    for name, write in WRITES.items():
        with subtests.test(name=name):
            for depth in (DEEPEST + 1, TOO_DEEP_FOR_PYTHON):
                with pytest.raises(psycopg.errors.CheckViolation, match="nested_at_most_100_deep"):
                    connection.execute(write.encode(), [as_json(depth)])
            connection.execute(write.encode(), [as_json(DEEPEST)])


def test_the_depth_of_a_compressed_value_is_checked(connection: psycopg.Connection) -> None:
    connection.execute("create temp table stored (args jsonb)")
    connection.execute("insert into stored values (%s::jsonb)", [as_json(TOO_DEEP_FOR_PYTHON)])
    assert one(connection, "select pg_column_compression(args) is not null from stored")
    with pytest.raises(psycopg.errors.CheckViolation, match="nested_at_most_100_deep"):
        connection.execute("select sereno.enqueue('work', args) from stored")


def test_python_and_postgresql_count_the_same_depth(connection: psycopg.Connection) -> None:
    def refuses(text: str) -> bool:
        try:
            connection.execute("select %s::jsonb::sereno.bounded_json", [text])
        except psycopg.errors.CheckViolation:
            return True
        return False

    wide = "[" + ",".join(["{}"] * 500) + "]"
    brackets = '{"a": "' + "[" * 300 + '"}'
    escaped = '{"a": "\\"' + "[" * 300 + '\\\\", "b": ' + wide + "}"
    both = '{"a": [' * 50 + "1" + "]}" * 50
    texts = [as_json(depth) for depth in range(DEEPEST - 2, DEEPEST + 3)] + [wide, brackets, escaped, both]
    texts += ['{"a": [' * 50 + "{}" + "]}" * 50, "[" * 100 + "1" + "]" * 100]
    found = [(is_too_deep(text.encode()), refuses(text)) for text in texts]
    assert found == [(deep, deep) for deep, _ in found]
    assert [deep for deep, _ in found] == [False] * 3 + [True] * 2 + [False] * 4 + [True, False]


@pytest.mark.slow
async def test_a_job_nested_too_deep_does_not_affect_other_jobs_of_its_claim(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task
    async def work(value: Any) -> None: ...

    allow_any_depth(connection)
    deep = one(connection, "select sereno.enqueue('work', %s::jsonb)", as_json(TOO_DEEP_FOR_PYTHON))
    others = await app.aenqueue_many([work.job(n) for n in range(OTHERS)])
    async with app.working():
        await auntil(lambda: state(connection, deep) == "dead")
        await auntil(lambda: {state(connection, job.id) for job in others} == {"succeeded"})
    assert one(connection, "select max(attempt) from sereno.history") == 1
    assert str(one(connection, "select reason from sereno.history where id = %s", deep)).startswith("undecodable")


@pytest.mark.slow
async def test_a_job_nested_too_deep_does_not_affect_other_jobs_under_limits_or_in_batches(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task(concurrency=Limit(3))
    async def limited(value: Any) -> None: ...

    @app.task(batch=10)
    async def together(values: list[Any]) -> None: ...

    allow_any_depth(connection)
    # As a worker does, so that jobs from SQL know the limits.
    await app.adeclare()
    text = as_json(TOO_DEEP_FOR_PYTHON)
    others = await app.aenqueue_many([limited.job(n) for n in range(OTHERS)])
    others += await app.aenqueue_many([together.job(n) for n in range(OTHERS)])
    deep = [
        one(connection, "select sereno.enqueue('limited', %s::jsonb)", text),
        one(connection, "select sereno.enqueue('together', %s::jsonb)", text.replace("value", "item")),
    ]
    async with app.working():
        await auntil(lambda: {state(connection, job) for job in deep} == {"dead"})
        await auntil(lambda: {state(connection, job.id) for job in others} == {"succeeded"})
    assert one(connection, "select max(attempt) from sereno.history") == 1


@pytest.mark.slow
async def test_a_job_with_an_unreadable_column_is_dead_and_names_the_column(
    app: Sereno, connection: psycopg.Connection
) -> None:
    @app.task
    async def work(value: Any) -> None: ...

    bad = await work.aenqueue('quotes " and \\ and [brackets, {')
    others = await app.aenqueue_many([work.job(n) for n in range(OTHERS)])
    connection.execute(
        "update sereno.jobs set schedule_id = 7, planned_at = 'infinity', stands_for = 1 where id = %s", [bad.id]
    )
    async with app.working():
        await auntil(lambda: state(connection, bad.id) == "dead")
        await auntil(lambda: {state(connection, job.id) for job in others} == {"succeeded"})
    found = connection.execute("select reason, args from sereno.history where id = %s", [bad.id]).fetchone()
    assert found is not None
    assert found[0].startswith("unreadable job: fire: ")
    assert found[1] == {"value": 'quotes " and \\ and [brackets, {'}
