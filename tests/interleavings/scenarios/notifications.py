"""Notifications: fan-out, sending, receipts, pauses, digests, escalation, and deliveries that are requeued."""

from collections import Counter

import psycopg

from sereno import Digest
from sereno.channels.outcome import Receipt
from sereno.database.statement import Operation
from sereno.notifications import events
from sereno.notifications.deliveries import store
from sereno.worker import sessions
from tests.interleavings.program import Isolation, Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.delivery_world import (
    APP,
    PAGER,
    PARTS,
    PEOPLE,
    PUBLISHED,
    DeliveryProgram,
    DeliveryWorld,
    ParkingPhone,
    fanned_out,
    finish,
    give_jobs,
    give_to_provider,
    pending,
    published,
    send_all,
    sends,
    sent_once,
    states,
    write,
)
from tests.interleavings.scenarios.job_world import LEASE
from tests.jobs.job_steps import Connection, advance, do, session
from tests.notifications.conftest import Tender

# Seconds after which a message that was not delivered is escalated.
UNTIL_ESCALATED = 600.0
CHAIN = PAGER.then(ParkingPhone(), after=UNTIL_ESCALATED)
(STEP,) = CHAIN.steps
ALARM = APP.event("alarm", Tender, channels=[CHAIN])
GATHERED = APP.event("tender.changed", Tender, channels=[PAGER], digest=Digest("15m"))


def _fans_out(name: str) -> DeliveryProgram:
    def program(world: DeliveryWorld) -> Program:
        more = True
        while more:
            step = yield Run(PARTS.fanout.create_deliveries(world.event), atomic=True)
            world.notes[name] = world.notes.get(name, 0) + step.created
            more = step.more

    return program


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
    assert set(finish(connection, world).values()) == {"sent"}
    assert Counter(world.sent) == Counter(states(connection).keys()), f"sent {world.sent}"


TWO_FAN_OUTS = Scenario(
    name="two_fan_outs",
    capability="notifications",
    set_up=published,
    programs={"A": _fans_out("A"), "B": _fans_out("B")},
    check=_one_for_each,
    faulty=frozenset("A"),
)

TWO_SENDERS = Scenario(
    name="two_senders",
    capability="notifications",
    set_up=pending,
    programs={"A": sends("A"), "B": sends("B")},
    check=sent_once,
    faulty=frozenset("A"),
)


def _pauses(world: DeliveryWorld) -> Program:
    yield Run(store.pause_channel("pager", "", "broken"))
    world.notes["paused"] = True


SEND_AND_PAUSE = Scenario(
    name="send_and_pause",
    capability="notifications",
    set_up=pending,
    programs={"A": sends("A"), "B": sends("B"), "P": _pauses},
    check=sent_once,
)


def _receives(world: DeliveryWorld) -> Program:
    """The webhook of the provider: it confirms the first delivery, maybe before its provider id is stored."""
    yield Run(PARTS.receipts._apply("pager", "", [Receipt(provider_id="p1.1", outcome="delivered")]), atomic=True)


def _delivered_if_sent(connection: Connection, world: DeliveryWorld) -> None:
    sent_once(connection, world)
    # A receipt is true also if it came before the message was recorded.
    assert states(connection)[1] in ("delivered", "unknown"), "the receipt is lost"


RECORD_AND_RECEIPT = Scenario(
    name="record_and_receipt",
    capability="notifications",
    set_up=pending,
    programs={"A": sends("A"), "W": _receives, "V": _receives},
    check=_delivered_if_sent,
)


def _sweeps(_world: DeliveryWorld) -> Program:
    yield Run(PARTS.sweeper._replace_jobs(), atomic=True)


SWEEP_AND_SEND = Scenario(
    name="sweep_and_send",
    capability="notifications",
    set_up=pending,
    programs={"A": sends("A"), "S": _sweeps, "B": sends("B")},
    check=sent_once,
)


def _notifies(name: str, isolation: Isolation) -> DeliveryProgram:
    """Return a caller that stores the event; under REPEATABLE READ it may have to try again, as callers do."""

    def program(world: DeliveryWorld) -> Program:
        event = PUBLISHED._new(Tender("U"), None, "U", None, None, None, None, None, None)
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
    set_up=published,
    programs={"A": _notifies("A", "read committed"), "B": _notifies("B", "read committed")},
    check=_one_event,
    faulty=frozenset("A"),
)

TWO_NOTIFIES_REPEATABLE_READ = Scenario(
    name="two_notifies_repeatable_read",
    capability="notifications",
    set_up=published,
    programs={"A": _notifies("A", "repeatable read"), "B": _notifies("B", "repeatable read")},
    check=_one_event,
    faulty=frozenset("A"),
)


def _bounced(connection: Connection) -> DeliveryWorld:
    """Return a world of deliveries that bounced, of pending ones, and of a worker that runs a send job."""
    world = fanned_out(connection)
    send_all(connection, world)
    bounces = [Receipt(provider_id=f"p{delivery}.1", outcome="bounced") for delivery in world.sent]
    with connection.transaction():
        do(connection, PARTS.receipts._apply("pager", "", bounces))
    world.notes["bounced"] = sorted(world.sent)
    event = PUBLISHED.notify(Tender("U"), subject="U", conn=connection)
    with connection.transaction():
        do(connection, PARTS.fanout.create_deliveries(event))
    give_jobs(connection, world)
    return world


def _requeues(world: DeliveryWorld) -> Program:
    """An operator requeues the deliveries that bounced, and does it again if the reply was lost."""
    ids = world.notes["bounced"]
    try:
        world.notes["requeued"] = yield Run(PARTS.requeue_operation(ids), atomic=True)
    except ReplyLost:
        world.notes["requeued"] = ids
        world.notes["requeued again"] = yield Run(PARTS.requeue_operation(ids), atomic=True)


def _requeued_once(connection: Connection, world: DeliveryWorld) -> None:
    """A requeued delivery is sent once more; without a requeue it stays as it was."""
    assert not world.notes.get("requeued again"), "requeued twice without a failure in between"
    bounced = world.notes["bounced"]
    final = finish(connection, world)
    has_requeued = "requeued" in world.notes
    expected = {delivery: "bounced" if delivery in bounced and not has_requeued else "sent" for delivery in final}
    assert final == expected, f"the states are {final}, not {expected}"
    times = {delivery: 1 + (delivery in bounced and has_requeued) for delivery in final}
    assert Counter(world.sent) == times, f"sent {world.sent}"


REQUEUE_AND_SEND = Scenario(
    name="requeue_and_send",
    capability="notifications",
    set_up=_bounced,
    programs={"A": sends("A"), "R": _requeues},
    check=_requeued_once,
    faulty=frozenset("R"),
)


def _sent_by_a_dead_worker(connection: Connection) -> DeliveryWorld:
    """Return a world in which worker A has sent messages, and has lost its lease before it recorded them."""
    world = pending(connection)
    job = world.jobs["A"].id
    with connection.transaction():
        batch = do(connection, store.take("pager", "", job, 10))
    world.notes |= {"batch": batch, "outcomes": give_to_provider(world, batch), "ids": sorted(world.sent)}
    connection.execute(
        "update sereno.sessions set lease_until = sereno.now() - interval '1 ms' where id = %s", [world.sessions["A"]]
    )
    do(connection, sessions.expire())
    do(connection, sessions.rescue())
    return world


def _records_late(world: DeliveryWorld) -> Program:
    yield Run(write(world.jobs["A"].id, world.notes["batch"], world.notes["outcomes"]), atomic=True)


def _settles_and_sends(world: DeliveryWorld) -> Program:
    """The next job of the channel: it settles what the dead worker left, and sends what is pending."""
    world.notes["settling"] = True
    yield Run(PARTS.sender._recorder._settle(world.jobs["B"].id, "pager", ""), atomic=True)
    yield from sends("B")(world)


def _requeues_unknown(world: DeliveryWorld) -> Program:
    """An operator requeues what may have been sent; what is being sent is not requeued."""
    ids = yield Run(PARTS.requeue_operation(world.notes["ids"]), atomic=True)
    assert "settling" in world.notes or not ids, f"requeued while they were being sent: {ids}"
    world.notes["requeued"] = ids


def _last_message_counts(connection: Connection, world: DeliveryWorld) -> None:
    """Only a requeue sends a message again, and the outcome is that of the last one."""
    again = world.notes["requeued"]
    final = finish(connection, world)
    assert set(final.values()) == {"sent"}, f"the states are {final}"
    times = Counter(world.sent)
    assert times == {delivery: 1 + (delivery in again) for delivery in final}, f"sent {world.sent}, requeued {again}"
    names = connection.execute("select id, provider_id from sereno.deliveries").fetchall()
    wrong = [name for delivery, name in names if name != f"p{delivery}.{times[delivery]}"]
    assert not wrong, f"recorded for another message: {wrong}"


REQUEUE_AND_LATE_OUTCOME = Scenario(
    name="requeue_and_late_outcome",
    capability="notifications",
    set_up=_sent_by_a_dead_worker,
    programs={"A": _records_late, "B": _settles_and_sends, "R": _requeues_unknown},
    check=_last_message_counts,
)


def _unread(connection: Connection) -> DeliveryWorld:
    """Return a world of messages that were sent long ago, to the last person just now, and not delivered."""
    world = fanned_out(connection, ALARM)
    send_all(connection, world)
    advance(connection, UNTIL_ESCALATED + 1)
    connection.execute("update sereno.deliveries set sent_at = sereno.now() where id = %s", [max(world.sent)])
    world.notes |= {"first": min(world.sent), "last": max(world.sent), "begun": []}
    return world


def _escalate(event: int) -> Operation[events.EscalatedDelivery]:
    return PARTS.fanout._escalate(event, STEP, 0)


def _escalates(world: DeliveryWorld) -> Program:
    """The escalation job; it runs again after a lost reply, and may run twice at once after a lost lease."""
    world.notes["begun"].append("reported" in world.notes)
    try:
        yield Run(_escalate(world.event), atomic=True)
    except ReplyLost:
        yield Run(_escalate(world.event), atomic=True)


def _reads(world: DeliveryWorld) -> Program:
    """The provider reports that the first message was read."""
    receipt = Receipt(provider_id=f"p{world.notes['first']}.1", outcome="read", id="r1")
    yield Run(PARTS.receipts._apply("pager", "", [receipt]), atomic=True)
    world.notes["reported"] = True


def _by_phone(connection: Connection) -> Counter[int]:
    """Return how many deliveries by phone there are, by the delivery by pager of the same person."""
    rows = connection.execute(
        "select first.id from sereno.deliveries first join sereno.deliveries second using (event_id, recipient_id) "
        "where first.channel = 'pager' and second.channel = 'phone'"
    ).fetchall()
    return Counter(number for (number,) in rows)


def _escalated_once(connection: Connection, world: DeliveryWorld) -> None:
    """Who has not read the message in time gets one by phone; who had read it before gets none."""
    first, last = world.notes["first"], world.notes["last"]
    assert not _by_phone(connection)[last], "escalated before its time"
    with connection.transaction():
        do(connection, _escalate(world.event))
    found = _by_phone(connection)
    if all(world.notes["begun"]):
        assert not found[first], "escalated after it was read"
    assert found[first] <= 1, "escalated twice"
    assert found == Counter({first: found[first], first + 1: 1}), f"by phone: {found}"
    assert finish(connection, world) == {first: "read", first + 1: "sent", last: "sent"}, "the receipt is lost"
    assert set(states(connection, "phone").values()) == {"sent"}, "an escalated message was not sent"
    assert max(Counter(world.sent).values()) == 1, f"sent twice: {world.sent}"


ESCALATION_AND_RECEIPT = Scenario(
    name="escalation_and_receipt",
    capability="notifications",
    set_up=_unread,
    programs={"E": _escalates, "F": _escalates, "W": _reads},
    check=_escalated_once,
    faulty=frozenset("E"),
)


def _two_of_a_digest(connection: Connection) -> DeliveryWorld:
    """Return a world of two events of one digest that is due, in a batch each."""
    world = fanned_out(connection, GATHERED)
    event = GATHERED.notify(Tender("U"), subject="U", conn=connection)
    with connection.transaction():
        do(connection, PARTS.fanout.create_deliveries(event))
    advance(connection, 16 * 60.0)
    world.sessions = {name: session(connection, lease=LEASE) for name in "AB"}
    give_jobs(connection, world)
    return world


def _one_message_each(connection: Connection, world: DeliveryWorld) -> None:
    final = finish(connection, world)
    assert Counter(final.values()) == {"sent": len(PEOPLE), "skipped": len(PEOPLE)}, f"the states are {final}"
    assert len(world.sent) == len(PEOPLE), f"a digest was sent in two messages: {world.sent}"


TWO_DIGEST_SENDERS = Scenario(
    name="two_digest_senders",
    capability="notifications",
    set_up=_two_of_a_digest,
    programs={"A": sends("A", most=len(PEOPLE)), "B": sends("B", most=len(PEOPLE))},
    check=_one_message_each,
)

SCENARIOS = (
    TWO_FAN_OUTS,
    TWO_SENDERS,
    SEND_AND_PAUSE,
    RECORD_AND_RECEIPT,
    SWEEP_AND_SEND,
    TWO_NOTIFIES,
    TWO_NOTIFIES_REPEATABLE_READ,
    REQUEUE_AND_SEND,
    REQUEUE_AND_LATE_OUTCOME,
    ESCALATION_AND_RECEIPT,
    TWO_DIGEST_SENDERS,
)
