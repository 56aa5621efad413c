"""The result of a task with encrypt=True is stored encrypted, and only readers with the key see it."""

import json
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from sereno import Context, ResultUnavailable, Sereno
from sereno.jobs.encryption import MARK, RESULT, key_ring, new_key
from sereno.jobs.result import EncryptedResultType
from tests.facts import one
from tests.worker.test_encrypted_errors import everything_stored

CARD = "4111 1111 1111 1234"
LONG = "60s"
OLD, NEW = new_key("2026a"), new_key("2026b")


@dataclass
class Found:
    card: str


def declare(app: Sereno) -> dict[str, Any]:
    @app.task(encrypt=True)
    async def look_up(customer: int) -> Found:
        return Found(CARD)

    @app.task(encrypt=True)
    async def without_arguments() -> str:
        return CARD

    @app.task(encrypt=True)
    def in_a_transaction(ctx: Context) -> str:
        with ctx.transaction():
            ctx.set_result(CARD)
        return ""

    @app.task(encrypt=["customer"])
    async def plain(customer: int) -> str:
        return "plain"

    @app.task
    async def gathers(ctx: Context) -> int:
        return len([each for each in await ctx.results() if each in ({"card": CARD}, "plain", None)])

    @app.task
    async def calls(ctx: Context) -> bool:
        found: Found = await ctx.call(look_up.job(7))
        return found == Found(CARD)

    tasks = (look_up, without_arguments, in_a_transaction, plain, gathers, calls)
    return {task.name: task for task in tasks}


def opened(url: str, *keys: str) -> Sereno:
    return Sereno(url, encryption_keys=list(keys) or None)


@pytest.mark.slow
async def test_readers_see_the_result_and_tables_do_not(database_url: str, connection: psycopg.Connection) -> None:
    app = opened(database_url, NEW)
    tasks = declare(app)
    async with app.working():
        jobs = [await tasks["look_up"].aenqueue(7), await tasks["without_arguments"].aenqueue()]
        assert await jobs[0].aresult(LONG) == Found(CARD)
        assert await jobs[1].aresult(LONG) == CARD
        assert await (await app.jobs.aget(jobs[0].id)).aresult(LONG) == Found(CARD)
        assert await (await tasks["in_a_transaction"].aenqueue()).aresult(LONG) == CARD
        assert await (await tasks["plain"].aenqueue(7)).aresult(LONG) == "plain"
        assert await (await tasks["calls"].aenqueue()).aresult(LONG) is True
    await app.aclose()
    stored = everything_stored(connection)
    assert CARD not in stored
    assert one(connection, "select result from sereno.history where task = 'plain'") == "plain"
    sealed = one(connection, "select result from sereno.history where id = %s", jobs[0].id)
    assert sealed.keys() == {MARK}
    assert sealed[MARK].startswith("2026b:")


@pytest.mark.slow
async def test_the_job_after_others_gets_decrypted_results(database_url: str, connection: psycopg.Connection) -> None:
    app = opened(database_url, NEW, OLD)
    tasks = declare(app)
    members = [tasks["look_up"].job(1), tasks["plain"].job(2), tasks["look_up"].job(3)]
    async with app.working():
        group = await app.group(members, then=tasks["gathers"].job()).aenqueue()
        assert group.then is not None
        assert await group.then.aresult(LONG) == 3
    await app.aclose()


@pytest.mark.slow
async def test_a_reader_without_the_key_or_the_task_gets_an_error(
    database_url: str, connection: psycopg.Connection
) -> None:
    app = opened(database_url, OLD)
    tasks = declare(app)
    async with app.working():
        job = await tasks["look_up"].aenqueue(7)
        await job.aresult(LONG)
    await app.aclose()
    rotated, without_key, without_task = opened(database_url, NEW, OLD), opened(database_url, NEW), opened(database_url)
    declare(rotated)
    declare(without_key)
    assert rotated.jobs.get(job.id).result(LONG) == Found(CARD)
    with pytest.raises(ResultUnavailable, match=f"job {job.id}: task look_up: its result is encrypted with the key"):
        without_key.jobs.get(job.id).result(LONG)
    with pytest.raises(ResultUnavailable, match="read it in an application that declares the task"):
        without_task.jobs.get(job.id).result(LONG)
    for each in (rotated, without_key, without_task):
        each.close()


def test_a_result_that_cannot_be_encrypted_is_not_stored() -> None:
    kept = EncryptedResultType("look_up", Any, lambda: key_ring(None))
    made = kept.settlement(CARD, 1000)
    assert (made.outcome, made.result) == ("succeeded", None)
    assert made.reason is not None
    assert made.reason.startswith("its result was not stored: task look_up: its result is encrypted, and there is no")


def test_no_error_contains_the_value() -> None:
    ring = key_ring([NEW])
    kept = EncryptedResultType("look_up", int, lambda: ring)
    unstorable = kept.settlement({CARD: object()}, 1000)
    assert CARD not in (unstorable.reason or "")
    assert "values of encrypted tasks are not shown" in (unstorable.reason or "")
    other = kept.settlement(CARD, 1000)
    assert other.result is not None
    with pytest.raises(ResultUnavailable) as refused:
        kept.decode(7, other.result)
    assert CARD not in str(refused.value)


def test_a_result_cannot_be_moved_to_another_task_or_argument() -> None:
    ring = key_ring([NEW])
    kept = EncryptedResultType("look_up", str, lambda: ring)
    sealed = kept.settlement(CARD, 1000).result
    assert sealed is not None
    assert kept.decode(7, sealed) == CARD
    with pytest.raises(ResultUnavailable, match="job 7: task other: its result cannot be decrypted"):
        EncryptedResultType("other", str, lambda: ring).decode(7, sealed)
    argument = json.dumps(ring.encrypt(b'"x"', "look_up", "customer")).encode()
    with pytest.raises(ResultUnavailable, match="cannot be decrypted"):
        kept.decode(7, argument)
    assert json.loads(ring.decrypt(json.loads(sealed)[MARK], "look_up", RESULT)) == CARD
