"""Notifications: fan-out, sending, receipts, pauses of a channel, and deliveries that are requeued."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import psycopg

from sereno import Sereno
from sereno.channels.outcome import Receipt, Sent
from sereno.database.statement import Operation
from sereno.jobs import settlement, transitions
from sereno.jobs.job import ClaimedJob
from sereno.notifications.deliveries import store
from sereno.notifications.deliveries.store import Batch
from sereno.notifications.deliveries.transition import Transition, judge
from sereno.notifications.jobs import DELIVER, QUEUE
from sereno.worker import sessions
from tests.interleavings.program import Isolation, Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.job_world import LATER, LEASE
from tests.jobs.job_steps import Connection, advance, decided, do, session, settled, take
from tests.notifications.conftest import Pager, Tender

PEOPLE = ("ana", "luis", "eva")
# Never connected: only its operations are used.
APP = Sereno("postgresql://localhost/unused")


class ParkingPager(Pager):
    """A channel on which a message is not sent again if it is unknown whether it was sent."""

    on_unknown = "park"


PUBLISHED = APP.event("tender.published", Tender, channels=[ParkingPager()])
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


def _published(connection: Connection) -> DeliveryWorld:
    """Return a world of an event that is to be fanned out."""
    for person in PEOPLE:
        APP.recipients.upsert(person, {"pager": person}, conn=connection)
    event = PUBLISHED.notify(Tender("T"), subject="T", conn=connection)
    return DeliveryWorld(event, {name: session(connection, lease=LEASE) for name in "AB"})


def _pending(connection: Connection) -> DeliveryWorld:
    """Return a world of pending deliveries, and of two workers that each run a send job."""
    world = _published(connection)
    with connection.transaction():
        do(connection, PARTS.fanout.create_deliveries(world.event))
    do(connection, transitions.enqueue(PARTS._send_jobs.to_send("pager", "", 2)))
    for name, owner in world.sessions.items():
        (world.jobs[name],) = take(connection, owner, 1, queue=QUEUE, tasks=(DELIVER,))
    return world


def _fans_out(name: str) -> DeliveryProgram:
    def program(world: DeliveryWorld) -> Program:
        more = True
        while more:
            step = yield Run(PARTS.fanout.create_deliveries(world.event), atomic=True)
            world.notes[name] = world.notes.get(name, 0) + step.created
            more = step.more

    return program


def _outcomes(batch: Batch) -> list[Transition]:
    policy = PARTS.sender._recorder.policy("pager")
    return [judge(each.id, each.attempt, Sent(f"p{each.id}"), policy, Random(1)) for each in batch.deliveries]


def _write(job: int, batch: Batch) -> Operation[Any]:
    return PARTS.sender._recorder.write(job, "pager", "", batch.batches, _outcomes(batch), last=True)


def _sends(name: str) -> DeliveryProgram:
    """Return a worker that claims deliveries, gives them to the provider, records the outcomes and settles its job."""

    def program(world: DeliveryWorld) -> Program:
        job = world.jobs[name]
        was_paused = world.notes.get("paused", False)
        batch = yield Run(store.take("pager", "", job.id, 10), atomic=True)
        assert not (was_paused and batch.deliveries), "a paused channel gave deliveries"
        if batch.deliveries:
            world.sent += [each.id for each in batch.deliveries]
            try:
                yield Run(_write(job.id, batch), atomic=True)
            except ReplyLost:
                yield Run(_write(job.id, batch), atomic=True)
        yield Run(settlement.settle("forget", world.sessions[name], [settled(job, decided(), keep_history=False)]))

    return program


def _states(connection: Connection) -> dict[int, str]:
    return dict(connection.execute("select id, state from sereno.deliveries order by id").fetchall())


def _finish(connection: Connection, world: DeliveryWorld) -> dict[int, str]:
    """Rescue and send all that is left, and return the states."""
    advance(connection, LATER)
    connection.execute("delete from sereno.channel_pauses")
    do(connection, sessions.expire())
    do(connection, sessions.rescue(everywhere=True))
    owner = session(connection)
    for _ in range(5):
        with connection.transaction():
            do(connection, PARTS.sweeper._replace_jobs())
        do(connection, transitions.promote())
        for job in take(connection, owner, 20, queue=QUEUE, tasks=(DELIVER,)):
            with connection.transaction():
                do(connection, PARTS.sender._recorder._settle(job.id, "pager", ""))
            with connection.transaction():
                batch = do(connection, store.take("pager", "", job.id, 10))
            if batch.deliveries:
                world.sent += [each.id for each in batch.deliveries]
                with connection.transaction():
                    do(connection, _write(job.id, batch))
            do(connection, settlement.settle("forget", owner, [settled(job, decided(), keep_history=False)]))
        while _apply_early(connection):
            pass
        advance(connection, 120.0)
    return _states(connection)


def _apply_early(connection: Connection) -> bool:
    with connection.transaction():
        return do(connection, PARTS.receipts._apply_early()) is not None


def _one_for_each(connection: Connection, world: DeliveryWorld) -> None:
    made = sum(count for name, count in world.notes.items() if name in "AB")
    found = connection.execute("select recipient_id, count(*) from sereno.deliveries group by 1").fetchall()
    assert [count for _, count in found] in ([], [1] * len(found)), f"a recipient has two deliveries: {found}"
    assert made <= len(PEOPLE), f"{made} deliveries were counted"
    while True:
        with connection.transaction():
            step = do(connection, PARTS.fanout.create_deliveries(world.event))
        if not step.more:
            break
    assert set(_finish(connection, world).values()) == {"sent"}
    assert Counter(world.sent) == Counter(_states(connection).keys()), f"sent {world.sent}"


TWO_FAN_OUTS = Scenario(
    name="two_fan_outs",
    capability="notifications",
    set_up=_published,
    programs={"A": _fans_out("A"), "B": _fans_out("B")},
    check=_one_for_each,
    faulty=frozenset("A"),
)


def _sent_once(connection: Connection, world: DeliveryWorld) -> None:
    """Nothing is sent twice; what a dead worker may have sent is unknown, and is not sent again by itself."""
    final = _finish(connection, world)
    twice = [delivery for delivery, count in Counter(world.sent).items() if count > 1]
    assert not twice, f"sent twice: {twice}"
    wrong = {delivery: state for delivery, state in final.items() if state not in ("sent", "unknown", "delivered")}
    assert not wrong, f"never sent: {wrong}"
    unsent = [delivery for delivery, state in final.items() if state == "sent" and delivery not in world.sent]
    assert not unsent, f"recorded as sent and never given to the provider: {unsent}"


TWO_SENDERS = Scenario(
    name="two_senders",
    capability="notifications",
    set_up=_pending,
    programs={"A": _sends("A"), "B": _sends("B")},
    check=_sent_once,
    faulty=frozenset("A"),
)


def _pauses(world: DeliveryWorld) -> Program:
    yield Run(store.pause_channel("pager", "", "broken"))
    world.notes["paused"] = True


SEND_AND_PAUSE = Scenario(
    name="send_and_pause",
    capability="notifications",
    set_up=_pending,
    programs={"A": _sends("A"), "B": _sends("B"), "P": _pauses},
    check=_sent_once,
)


def _receives(world: DeliveryWorld) -> Program:
    """The webhook of the provider: it confirms the first delivery, maybe before its provider id is stored."""
    yield Run(PARTS.receipts._apply("pager", "", [Receipt(provider_id="p1", outcome="delivered")]), atomic=True)


def _delivered_if_sent(connection: Connection, world: DeliveryWorld) -> None:
    _sent_once(connection, world)
    # A receipt is true also if it came before the message was recorded.
    assert _states(connection)[1] in ("delivered", "unknown"), "the receipt is lost"


RECORD_AND_RECEIPT = Scenario(
    name="record_and_receipt",
    capability="notifications",
    set_up=_pending,
    programs={"A": _sends("A"), "W": _receives, "V": _receives},
    check=_delivered_if_sent,
)


def _sweeps(_world: DeliveryWorld) -> Program:
    yield Run(PARTS.sweeper._replace_jobs(), atomic=True)


SWEEP_AND_SEND = Scenario(
    name="sweep_and_send",
    capability="notifications",
    set_up=_pending,
    programs={"A": _sends("A"), "S": _sweeps, "B": _sends("B")},
    check=_sent_once,
)


def _notifies(name: str, isolation: Isolation) -> DeliveryProgram:
    """Return a caller that stores the event; under REPEATABLE READ it may have to try again, as callers do."""

    def program(world: DeliveryWorld) -> Program:
        event = PUBLISHED._new(Tender("U"), None, "U", None, None, None, None, None)
        for _ in range(3):
            try:
                world.notes[name] = yield Run(PUBLISHED._write(event), True, isolation)
                return
            except (psycopg.errors.SerializationFailure, psycopg.errors.UniqueViolation, ReplyLost):
                continue

    return program


def _one_event(connection: Connection, world: DeliveryWorld) -> None:
    stored = connection.execute("select id from sereno.events where subject = 'U'").fetchall()
    assert len(stored) <= 1, f"two events: {stored}"
    known = {world.notes[name] for name in "AB" if name in world.notes}
    assert known <= {number for (number,) in stored}
    jobs = connection.execute(
        "select count(*) from sereno.jobs where task = 'sereno.fan_out' and args ->> 'event' = any(%s)",
        [[str(number) for (number,) in stored]],
    ).fetchone()
    assert jobs == (len(stored),), f"an event has {jobs} jobs"


TWO_NOTIFIES = Scenario(
    name="two_notifies",
    capability="notifications",
    set_up=_published,
    programs={"A": _notifies("A", "read committed"), "B": _notifies("B", "read committed")},
    check=_one_event,
    faulty=frozenset("A"),
)

TWO_NOTIFIES_REPEATABLE_READ = Scenario(
    name="two_notifies_repeatable_read",
    capability="notifications",
    set_up=_published,
    programs={"A": _notifies("A", "repeatable read"), "B": _notifies("B", "repeatable read")},
    check=_one_event,
    faulty=frozenset("A"),
)

SCENARIOS = (
    TWO_FAN_OUTS,
    TWO_SENDERS,
    SEND_AND_PAUSE,
    RECORD_AND_RECEIPT,
    SWEEP_AND_SEND,
    TWO_NOTIFIES,
    TWO_NOTIFIES_REPEATABLE_READ,
)
