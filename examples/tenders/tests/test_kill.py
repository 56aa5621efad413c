"""`kill -9` at every step: nothing is lost, and nothing is done twice without a word about it.

A step is a write that is held up in the middle, by a trigger, or a partner that does not answer. There the worker is
killed, and another one takes over.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import psycopg
import pytest

from sereno.testing.process import WorkerProcess
from tenders.app import app
from tenders.tests.conftest import ANA, BEN, Bucket, World

LOCK = 8153
Victim = Literal["host", "worker", "supervisor"]


@dataclass(frozen=True)
class Write:
    """A row that is being written: the transaction is open, and will never be committed by whoever began it."""

    table: str
    what: str
    when: str = "true"


@dataclass(frozen=True)
class Call:
    """A partner that has read the request, and does not answer."""

    partner: Literal["page", "expo"]


Step = Write | Call

# Who is killed at a step; the whole host, unless this says otherwise.
IN_PART: dict[str, Victim] = {"the page is read": "worker", "the code is claimed": "supervisor"}
NEW: dict[str, Step] = {
    "the page is read": Call("page"),
    "the code is claimed": Write("tenders.registry", "insert"),
    "its job is written": Write("{sereno}.jobs", "insert", "new.task = 'tenders.announce'"),
    "the event is written": Write("{sereno}.events", "insert"),
    "its installations are matched": Write("{sereno}.deliveries", "insert"),
    "the push is about to leave": Write("{sereno}.deliveries", "update", "new.state = 'sending'"),
    "Expo has the push": Call("expo"),
    "the ticket is written": Write("{sereno}.deliveries", "update", "new.state = 'sent'"),
}
SENT: dict[str, Step] = {
    "the receipts are asked for": Call("expo"),
    "the receipt is written": Write("{sereno}.deliveries", "update", "new.state = 'delivered'"),
}
FLAG = Write("tenders.tenders", "update", "new.notified")
LEAVES = Write("tenders.tenders", "delete")
UPLOADED = Write("{sereno}.archive_files", "update", "new.uploaded_at is not null")
DROPPED = Write("{sereno}.archive_batches", "update", "new.dropped_at is not null")


@asynccontextmanager
async def held(world: World, step: Step) -> AsyncIterator[Callable[[], bool]]:
    """Whoever comes to this step waits there; gives whether somebody does."""
    if isinstance(step, Write):
        async with held_write(step) as is_there:
            yield is_there
        return
    partner = world.page if step.partner == "page" else world.expo
    before = len(partner.log)
    partner.open.clear()
    yield lambda: len(partner.log) > before
    partner.open.set()


@asynccontextmanager
async def held_write(step: Write) -> AsyncIterator[Callable[[], bool]]:
    table = step.table.format(sereno=app.settings.schema)
    async with await psycopg.AsyncConnection.connect(app.url, autocommit=True) as connection:
        await connection.execute(
            f"""create or replace function tenders.wait_here() returns trigger language plpgsql as
                $$ begin perform pg_advisory_xact_lock_shared({LOCK}); return null; end $$;
                create trigger wait_here after {step.what} on {table} for each row when ({step.when})
                execute function tenders.wait_here()""".encode()
        )
        await connection.execute("select pg_advisory_lock(%s)", [LOCK])
        waiting = """select count(*) from pg_locks join pg_database on pg_database.oid = database
                     where datname = current_database() and locktype = 'advisory' and objid = %s and not granted"""

        def is_there() -> bool:
            with psycopg.connect(app.url) as other:
                return other.execute(waiting, [LOCK]).fetchone() != (0,)

        yield is_there
        await connection.execute("select pg_advisory_unlock(%s)", [LOCK])
        await connection.execute(f"drop trigger wait_here on {table}".encode())


def kill(world: World, worker: WorkerProcess, victim: Victim) -> None:
    """A supervisor has a process beside it that does the work: a host takes both along, the supervisor first."""
    alive = "select pid from {sereno}.sessions where state = 'alive' and pid <> %s"
    ((child,),) = world.rows(alive, os.getpid())
    for pid in {"host": [worker.pid, child], "worker": [child], "supervisor": [worker.pid]}[victim]:
        os.kill(pid, signal.SIGKILL)


async def die(world: World, step: Step, victim: Victim = "host") -> None:
    """A real worker, killed at this step; what it had comes back when its lease has run out."""
    async with held(world, step) as is_there:
        with world.kit.crash_worker("tenders.app:app") as worker:
            await asyncio.to_thread(worker.until, is_there)
            kill(world, worker, victim)
    world.kit.lose_leases()


async def finish(world: World) -> None:
    """Everything that is to happen by itself. A push of which nobody knows is sent again, and has its own receipt."""
    await world.cycle()
    await world.until_receipts()
    if "sent" in world.states().values():
        await world.until_receipts()


def check(world: World, code: str) -> None:
    """The tender is there once, both were told, and twice only where the delivery says that nobody knew."""
    assert world.tenders() == {code: ("Biobío", 7_000_000, "Municipality 1", True)}
    assert world.states() == {"ana": "delivered", "ben": "delivered"}
    unknowns = dict(
        world.rows(
            "select key, unknowns from {sereno}.deliveries join {sereno}.recipients on recipients.id = recipient_id"
        )
    )
    for installation, token in (("ana", ANA), ("ben", BEN)):
        assert 1 <= world.pushed().count((code, token)) <= 1 + unknowns[installation]
    world.check_promises()


@pytest.mark.parametrize("step", NEW)
async def test_killed_on_the_way_to_a_phone(world: World, step: str) -> None:
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    world.kit.travel("2m")
    await die(world, NEW[step], IN_PART.get(step, "host"))
    await finish(world)
    check(world, code)


@pytest.mark.parametrize("step", SENT)
async def test_killed_on_the_way_back(world: World, step: str) -> None:
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    await world.cycle()
    world.kit.travel("16m")
    await die(world, SENT[step])
    await finish(world)
    check(world, code)
    assert len(world.pushed()) == 2


async def test_killed_while_the_flag_is_written(world: World) -> None:
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    await world.cycle()
    await alone(world, "16m", without="tenders.confirm")
    world.kit.travel("1m")
    await die(world, FLAG)
    await world.cycle()
    check(world, code)


async def test_killed_at_every_step_to_the_archive(world: World, bucket: Bucket) -> None:
    code = world.authority.publish()
    await world.cycle()
    world.kit.travel("366d")
    await die(world, LEAVES)
    await alone(world, "1m", without="sereno.archive_export")
    assert not world.tenders()
    world.kit.travel("1d")
    await die(world, UPLOADED)
    await world.nights(1)
    world.kit.travel("7d")
    await die(world, DROPPED)
    await world.nights(1)
    assert [row["code"] for row in bucket.rows("tenders.tenders")] == [code]
    batches = "select rows, dropped_at is not null from {sereno}.archive_batches where source = 'tenders.tenders'"
    assert world.rows(batches) == [(1, True)]
    world.check_promises()


async def alone(world: World, wait: str, *, without: str) -> None:
    """Time passes, and one of the cycles stands still meanwhile."""
    await app.schedules.apause(without)
    world.kit.travel(wait)
    await world.kit.adrain()
    await app.schedules.aresume(without)
