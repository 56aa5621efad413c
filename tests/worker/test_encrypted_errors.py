"""What a handler puts into its errors reaches no table and no log, if the argument is encrypted."""

import json
import logging
import operator

import psycopg
import pytest

from sereno import Context, Dead, Sereno, Snooze
from sereno.jobs.encryption import new_key
from tests.facts import auntil, one, state

CARD = "4111 1111 1111 1234"
# Written with escapes by repr and by JSON.
TEXT = 'line "one"\nline two \\ end'


async def ended(app: Sereno, connection: psycopg.Connection, jobs: int) -> None:
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.history") == jobs)


def everything_stored(connection: psycopg.Connection) -> str:
    tables = ("jobs", "history", "attempts", "error_groups", "logs", "audit", "sessions", "schedule_ends")
    rows = [connection.execute(f"select {table}::text from sereno.{table}").fetchall() for table in tables]
    return json.dumps(rows)


async def test_errors_of_handlers_do_not_contain_the_values(
    database_url: str, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    app = Sereno(database_url, encryption_keys=[new_key("one")], keep_logs="info")

    @app.task(encrypt=True, retry=0)
    async def fails(card: str, text: str) -> None:
        raise ValueError(f"refused {card} and {text!r}")

    @app.task(encrypt=True, retry=0)
    def fails_in_a_thread(card: str, text: str) -> None:
        try:
            operator.getitem({"": 1}, card)
        except KeyError as error:
            raise ValueError(json.dumps(text)) from error

    @app.task(encrypt=True)
    async def gives_up(card: str, text: str) -> None:
        raise Dead(f"{card} {text}")

    @app.task(encrypt=True, batch=5, retry=0)
    async def fails_together(cards: list[str]) -> None:
        raise ValueError(f"refused {cards}")

    @app.task(encrypt=True)
    async def fails_afterwards(ctx: Context, card: str, text: str) -> None:
        async with ctx.transaction():
            pass
        raise ValueError(f"refused {card} {text}")

    for task in (fails, fails_in_a_thread, gives_up, fails_afterwards):
        task.enqueue(CARD, TEXT)
    fails_together.enqueue(CARD)
    with caplog.at_level(logging.DEBUG):
        await ended(app, connection, 5)
    assert one(connection, "select count(*) from sereno.history where state = 'dead'") == 4
    assert "refused [encrypted]" in str(
        one(connection, "select error_message from sereno.history where task = 'fails'")
    )
    found = everything_stored(connection) + caplog.text
    assert "refused" in found
    for secret in (CARD, "line two"):
        assert secret not in found
    app.close()


@pytest.mark.slow
async def test_an_error_of_a_batch_contains_no_value_of_any_of_its_jobs(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(database_url, encryption_keys=[new_key("one")])

    @app.task(encrypt=True, batch=5, retry=0)
    async def charge(cards: list[str]) -> None:
        raise ValueError(f"refused {cards}")

    cards = [f"{number} 1111 1111" for number in range(1001, 1006)]
    app.enqueue_many([charge.job(card) for card in cards])
    await ended(app, connection, 5)
    hidden = ", ".join(["'[encrypted]'"] * 5)
    assert connection.execute("select distinct error_message from sereno.history").fetchall() == [
        (f"refused [{hidden}]",)
    ]
    found = everything_stored(connection)
    assert [card for card in cards if card in found] == []
    app.close()


@pytest.mark.slow
async def test_a_worker_without_the_key_leaves_the_job_to_one_that_has_it(
    database_url: str, connection: psycopg.Connection
) -> None:
    seen = []
    key = new_key("2026b")
    apps = [Sereno(database_url, encryption_keys=keys, poll=0.1) for keys in ([key], [new_key("2026a")])]
    for app in apps:

        @app.task(encrypt=True)
        async def charge(card: str) -> None:
            seen.append(card)

        @app.task
        async def plain() -> None:
            raise Snooze("1h")

    able, unable = apps
    job = able.enqueue_many([able.new_job("charge", json.dumps({"card": CARD}).encode())])[0]
    marker = able.enqueue_many([able.new_job("plain", b"{}")])[0]
    async with unable.working():
        # The plain job was enqueued later: the claim that took it has seen the other one.
        await auntil(lambda: state(connection, marker.id) == "scheduled")
        assert state(connection, job.id) == "ready"
        assert one(connection, "select attempt from sereno.jobs where id = %s", job.id) == 0
    async with able.working():
        await auntil(lambda: state(connection, job.id) == "succeeded")
    assert seen == [CARD]
    for app in apps:
        app.close()
