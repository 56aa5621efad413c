"""The queue of the notifications is moved to NATS by configuration, step by step, and back: nothing is sent twice."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from reminders.app import app, status
from reminders.settings import DISPATCH_QUEUE as QUEUE
from reminders.stand_ins import StandIns
from reminders.tests.clients import sql

from sereno import JetStream
from sereno.carriers.contract import CarrierState
from sereno.carriers.local_server import LocalNats
from sereno.carriers.store import set_share
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

Remind = Callable[..., int]


@pytest.fixture
def nats(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNats]:
    """Return a server that carries the queue, by the environment of worker processes."""
    server = LocalNats(tmp_path_factory.mktemp("nats"))
    server.start()
    address = server.url.removeprefix("nats://")
    monkeypatch.setenv("NOTIFICATION_QUEUE_DRIVER", f"jetstream://{address}")
    yield server
    server.stop()


def carried(nats: LocalNats) -> tuple[CarrierState, int]:
    """Return the state of the queue at its carrier, and how many messages were acknowledged."""

    async def ask() -> tuple[CarrierState, int]:
        client = await JetStream(nats.url).connect()
        try:
            return await client.state(QUEUE), await client.acknowledged(QUEUE)
        finally:
            await client.close()

    return asyncio.run(ask())


def send(kit: Kit, remind: Remind, count: int) -> list[int]:
    """Insert reminders, and let a worker process find and send them all."""
    numbers = [remind() for _ in range(count)]
    kit.travel("5m")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: [status(number) for number in numbers] == ["SENT"] * count)
    kit.lose_leases()
    return numbers


def test_the_queue_is_moved_to_nats_and_back(
    kit: Kit, stand_ins: StandIns, remind: Remind, nats: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off, a canary, everything, back, retired. Each reminder is sent once, and the deliveries say so."""
    sent = 0
    for share in (0, 10, 100, 0):
        app.database.run(set_share(QUEUE, share))
        before = carried(nats)[1]
        send(kit, remind, 6)
        sent += 6
        assert len(stand_ins.mails.mails) == sent
        if share == 0:
            assert carried(nats)[1] == before
        elif share == 100:
            assert carried(nats)[1] > before
            # The old side can be retired: nothing waits there.
            assert sql("select count(*) from sereno.jobs_v1 where queue = %s and state = 'ready'", QUEUE) == [(0,)]

    state, _ = carried(nats)
    assert (state.pending_messages, state.held_messages) == (0, 0)
    monkeypatch.setenv("NOTIFICATION_QUEUE_DRIVER", "pgboss")
    nats.stop()
    send(kit, remind, 6)
    assert len(stand_ins.mails.mails) == sent + 6
    assert {(each.state, each.attempts) for each in kit.deliveries(channel="email")} == {("sent", 1)}


def test_a_killed_worker_loses_nothing(kit: Kit, stand_ins: StandIns, remind: Remind, nats: LocalNats) -> None:
    """The worker dies when its first mails are sent. The others are sent by its successor."""
    numbers = [remind() for _ in range(12)]
    kit.travel("5m")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: stand_ins.mails.mails)
        worker.kill()
    kit.lose_leases()
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: [status(number) for number in numbers] == ["SENT"] * 12, timeout=90)
    kit.lose_leases()
    # A mail that was on its way when the worker died is sent again under its own id.
    assert len({mail.parsed()["message-id"] for mail in stand_ins.mails.mails}) == 12


def test_the_servers_are_away(kit: Kit, stand_ins: StandIns, remind: Remind, nats: LocalNats) -> None:
    """The deliveries are the truth: jobs run from PostgreSQL while their carrier does not answer."""
    nats.kill(0)
    send(kit, remind, 3)
    assert len(stand_ins.mails.mails) == 3
