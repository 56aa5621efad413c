"""The relay: messages that wait for their carrier, or are too large for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sereno import JetStream, Sereno
from sereno.carriers.local_server import LocalNats
from tests.facts import auntil, one
from tests.jobs.job_steps import line

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


class SmallMessages(LocalNats):
    """A server that accepts messages of at most 20,000 bytes."""

    def _config(self, node: int, home: Path) -> str:
        return super()._config(node, home) + "max_payload: 20000\n"


@pytest.fixture
def own_nats(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalNats]:
    """Return a server of the test, which it may pause."""
    nats: LocalNats = getattr(request, "param", LocalNats)(tmp_path / "nats")
    nats.start()
    yield nats
    nats.stop()


async def test_a_message_stays_in_postgresql_until_its_carrier_has_stored_it(
    database_url: str, own_nats: LocalNats
) -> None:
    nats = own_nats
    app = Sereno(database_url)
    app.queue("clicks", carrier=JetStream(nats.url))
    seen: set[int] = set()

    @app.task(queue="clicks", history=False)
    async def click(number: int) -> None:
        seen.add(number)

    with line(database_url) as connection:
        async with app.working() as worker:
            await auntil(lambda: worker.carried._relay is not None and worker.carried._relay.rounds > 0)
            # It answers nothing from now on, and the relay does not know yet.
            nats.pause(0)
            await click.aenqueue(1)
            await auntil(lambda: one(connection, "select jobs from sereno.relay_batches") == 1)
            relay = worker.carried._relay
            assert relay is not None
            await auntil(lambda: relay._failing)
            assert one(connection, "select count(*) from sereno.relay_batches") == 1
            assert not seen
            nats.resume(0)
            await auntil(lambda: seen == {1})
            await auntil(lambda: one(connection, "select count(*) from sereno.relay_batches") == 0)
    await app.aclose()


@pytest.mark.parametrize("own_nats", [SmallMessages], indirect=True)
async def test_jobs_that_are_too_large_for_one_message_are_split_or_run_from_postgresql(
    database_url: str, own_nats: LocalNats
) -> None:
    app = Sereno(database_url)
    app.queue("clicks", carrier=JetStream(own_nats.url))
    seen: set[int] = set()

    @app.task(queue="clicks", history=False)
    async def click(number: int, text: str) -> None:
        assert text
        seen.add(number)

    with line(database_url) as connection:
        async with app.working() as worker:
            await auntil(lambda: worker.carried._relay is not None and worker.carried._relay._shares["clicks"])
            jobs = [click.job(n, "x" * (30_000 if n == 7 else 3_000)) for n in range(40)]
            await app.aenqueue_many(jobs)
            await auntil(lambda: seen == set(range(40)))
            await auntil(lambda: one(connection, "select count(*) from sereno.relay_batches") == 0)
    await app.aclose()
