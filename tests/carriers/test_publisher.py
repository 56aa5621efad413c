"""Direct enqueue: ids, forks and callers that give up."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from sereno import JetStream, Sereno, Task
from sereno.errors import CarrierUnavailable

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:This process")]


def clicks(url: str, carrier: JetStream) -> tuple[Sereno, Task[[int], None]]:
    """Return an application, and the task of its carried queue."""
    app = Sereno(url)
    app.queue("clicks", carrier=carrier, direct=True)

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None: ...

    return app, click


def test_a_forked_process_has_ids_of_its_own(database_url: str, jetstream: JetStream, tmp_path: Path) -> None:
    app, click = clicks(database_url, jetstream)
    own = {click.enqueue(1).id}
    child = os.fork()
    if child == 0:
        (tmp_path / "ids").write_text(json.dumps([click.enqueue(n).id for n in range(3)]))
        os._exit(0)
    own |= {click.enqueue(n).id for n in range(3)}
    os.waitpid(child, 0)
    theirs = set(json.loads((tmp_path / "ids").read_text()))
    app.close()
    assert len(theirs) == 3
    assert not own & theirs


def test_a_caller_that_gives_up_does_not_stop_others(database_url: str, jetstream: JetStream) -> None:
    app, click = clicks(database_url, jetstream)

    async def act() -> None:
        await click.aenqueue(0)
        for _ in range(20):
            callers = [asyncio.create_task(click.aenqueue(n)) for n in range(50)]
            await asyncio.sleep(0)
            for caller in callers[::2]:
                caller.cancel()
            async with asyncio.timeout(30):
                await asyncio.gather(*callers, return_exceptions=True)
            assert all(caller.exception() is None for caller in callers[1::2])

    asyncio.run(act())
    app.close()


def test_no_caller_waits_for_the_next_one(database_url: str, jetstream: JetStream) -> None:
    """A job that is added while the message before it has just been acknowledged is published as well."""
    app, click = clicks(database_url, jetstream)

    async def one_by_one(start: int) -> None:
        for number in range(start, start + 400):
            await click.aenqueue(number)

    async def act() -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*(one_by_one(400 * caller) for caller in range(3)))

    asyncio.run(act())
    app.close()


def test_a_carrier_that_is_away_is_reported(database_url: str) -> None:
    app, click = clicks(database_url, JetStream("nats://127.0.0.1:1"))
    jobs = [click.job(n) for n in range(20_000)]
    with pytest.raises(CarrierUnavailable, match=r"127\.0\.0\.1:1"):
        app.enqueue_many(jobs)
    app.close()
