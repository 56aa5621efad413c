"""The world of scenarios about notifications: events, the jobs that send, and what was given to the provider."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import msgspec

from sereno import Sereno
from sereno.channels.outcome import Sent
from sereno.database.statement import Operation
from sereno.jobs import settlement, transitions
from sereno.jobs.job import ClaimedJob
from sereno.notifications.deliveries import store
from sereno.notifications.deliveries.store import Batch
from sereno.notifications.deliveries.transition import Transition, judge
from sereno.notifications.event_handle import Event
from sereno.notifications.jobs import DELIVER, QUEUE
from sereno.worker import sessions
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenarios.job_world import LATER, LEASE
from tests.jobs.job_steps import Connection, advance, decided, do, session, settled, take
from tests.notifications.conftest import Pager, Tender

PEOPLE = ("ana", "luis", "eva")
# Never connected: only its operations are used.
APP = Sereno("postgresql://localhost/unused")


class ParkingPager(Pager):
    """A channel on which a message is not sent again if it is unknown whether it was sent."""

    on_unknown = "park"


class ParkingPhone(ParkingPager):
    """The second channel of an escalation."""

    name = "phone"


PAGER = ParkingPager()
PUBLISHED = APP.event("tender.published", Tender, channels=[PAGER])
PARTS = APP.notifications


@dataclass
class DeliveryWorld:
    """`jobs`: the send job that each worker runs. `sent`: deliveries given to the provider, one entry for each time."""

    event: int = 0
    sessions: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, ClaimedJob] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)


DeliveryProgram: TypeAlias = Callable[[DeliveryWorld], Program]


def published(connection: Connection, event: Event[Tender] = PUBLISHED) -> DeliveryWorld:
    """Return a world of an event that is to be fanned out."""
    for person in PEOPLE:
        APP.recipients.upsert(person, {"pager": person, "phone": person}, conn=connection)
    number = event.notify(Tender("T"), subject="T", conn=connection)
    return DeliveryWorld(number, {name: session(connection, lease=LEASE) for name in "AB"})


def fanned_out(connection: Connection, event: Event[Tender] = PUBLISHED) -> DeliveryWorld:
    """Return a world of pending deliveries."""
    world = published(connection, event)
    with connection.transaction():
        do(connection, PARTS.fanout.create_deliveries(world.event))
    return world


def pending(connection: Connection, event: Event[Tender] = PUBLISHED) -> DeliveryWorld:
    """Return a world of pending deliveries, and of two workers that each run a send job."""
    world = fanned_out(connection, event)
    give_jobs(connection, world)
    return world


def give_jobs(connection: Connection, world: DeliveryWorld) -> None:
    """Let each worker run a send job."""
    do(connection, transitions.enqueue(PARTS._send_jobs.to_send("pager", "", 2)))
    for name, owner in world.sessions.items():
        (world.jobs[name],) = take(connection, owner, 1, queue=QUEUE, tasks=(DELIVER,))


def give_to_provider(world: DeliveryWorld, batch: Batch, channel: str = "pager") -> list[Transition]:
    """Give the messages to the provider, which names them by delivery and time; return the outcomes."""
    world.sent += [each.id for each in batch.deliveries]
    policy, times = PARTS.sender._recorder.policy(channel), Counter(world.sent)
    return [
        judge(each.id, each.attempt, Sent(f"p{each.id}.{times[each.id]}"), policy, Random(1))
        for each in batch.deliveries
    ]


def write(job: int, batch: Batch, outcomes: list[Transition], channel: str = "pager") -> Operation[Any]:
    """Return the operation that records the outcomes of a batch."""
    return PARTS.sender._recorder.write(job, channel, "", batch.batches, outcomes, last=True)


def sends(name: str, most: int = 10) -> DeliveryProgram:
    """Return a worker that claims deliveries, gives them to the provider, records the outcomes and settles its job."""

    def program(world: DeliveryWorld) -> Program:
        job = world.jobs[name]
        was_paused = world.notes.get("paused", False)
        batch = yield Run(store.take("pager", "", job.id, most), atomic=True)
        assert not (was_paused and batch.deliveries), "a paused channel gave deliveries"
        if batch.deliveries:
            outcomes = give_to_provider(world, batch)
            try:
                yield Run(write(job.id, batch, outcomes), atomic=True)
            except ReplyLost:
                yield Run(write(job.id, batch, outcomes), atomic=True)
        yield Run(settlement.settle("forget", world.sessions[name], [settled(job, decided(), keep_history=False)]))

    return program


def states(connection: Connection, channel: str = "pager") -> dict[int, str]:
    """Return the state of each delivery of a channel."""
    query = "select id, state from sereno.deliveries where channel = %s order by id"
    return dict(connection.execute(query, [channel]).fetchall())


def send_all(connection: Connection, world: DeliveryWorld) -> None:
    """Run all send jobs that are due, of all channels."""
    owner = session(connection)
    do(connection, transitions.promote())
    for job in take(connection, owner, 20, queue=QUEUE, tasks=(DELIVER,)):
        channel: str = msgspec.json.decode(job.args)["channel"]
        with connection.transaction():
            do(connection, PARTS.sender._recorder._settle(job.id, channel, ""))
        with connection.transaction():
            batch = do(connection, store.take(channel, "", job.id, 10))
        if batch.deliveries:
            outcomes = give_to_provider(world, batch, channel)
            with connection.transaction():
                do(connection, write(job.id, batch, outcomes, channel))
        do(connection, settlement.settle("forget", owner, [settled(job, decided(), keep_history=False)]))


def finish(connection: Connection, world: DeliveryWorld) -> dict[int, str]:
    """Rescue and send all that is left, and return the states by pager."""
    advance(connection, LATER)
    connection.execute("delete from sereno.channel_pauses")
    do(connection, sessions.expire())
    do(connection, sessions.rescue(everywhere=True))
    for _ in range(5):
        with connection.transaction():
            do(connection, PARTS.sweeper._replace_jobs())
        send_all(connection, world)
        while _apply_early(connection):
            pass
        advance(connection, 120.0)
    return states(connection)


def _apply_early(connection: Connection) -> bool:
    with connection.transaction():
        return do(connection, PARTS.receipts._apply_early()) is not None


def sent_once(connection: Connection, world: DeliveryWorld) -> None:
    """Nothing is sent twice; what a dead worker may have sent is unknown, and is not sent again by itself."""
    final = finish(connection, world)
    twice = [delivery for delivery, count in Counter(world.sent).items() if count > 1]
    assert not twice, f"sent twice: {twice}"
    wrong = {delivery: state for delivery, state in final.items() if state not in ("sent", "unknown", "delivered")}
    assert not wrong, f"never sent: {wrong}"
    unsent = [delivery for delivery, state in final.items() if state == "sent" and delivery not in world.sent]
    assert not unsent, f"recorded as sent and never given to the provider: {unsent}"
