"""Carried queues: relays that move jobs out of PostgreSQL, and workers that store jobs of the same message."""

from collections import Counter

import msgspec

from sereno.carriers import store
from sereno.carriers.message import decode
from sereno.jobs import settlement, transitions
from sereno.jobs.attempt import Settlement
from sereno.jobs.job import ClaimedJob
from sereno.worker import sessions
from tests.carriers.carrier_steps import FIRST_ID, row
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.job_world import (
    JobProgram,
    JobWorld,
    both,
    claims,
    does,
    expired,
    recovers,
    running,
    settled_once,
    settles,
    states,
)
from tests.jobs.job_steps import Connection, advance, decided, do, end, session, settled, take

QUEUE = "default"
LATER = 7200.0
POSITION = 7


def _publish(world: JobWorld, batches: list[store.RelayBatch]) -> None:
    """Give messages to the carrier, which stores one of each id."""
    stream: dict[int, list[int]] = world.notes.setdefault("stream", {})
    for batch in batches:
        stream.setdefault(batch.id, decode(batch.body).ids)


def relays(name: str) -> JobProgram:
    """Return a relay: it moves the jobs that it holds into a message, publishes it and deletes it.

    As workers do, it tries again after a lost reply, and looks for messages of its own and of dead sessions.
    """

    def program(world: JobWorld) -> Program:
        owner = world.sessions[name]
        ids = [job.id for job in world.claimed.get(name, [])]
        if ids:
            try:
                yield Run(store.carry(owner, QUEUE, ids))
            except ReplyLost:
                _, kept = yield Run(store.carry(owner, QUEUE, ids))
                world.notes["kept"] = kept
        yield from takes_over(name)(world)

    return program


def takes_over(name: str) -> JobProgram:
    """Return the part of a relay that publishes what it finds."""

    def program(world: JobWorld) -> Program:
        try:
            batches = yield Run(store.take_batches(world.sessions[name], [QUEUE]))
        except ReplyLost:
            batches = yield Run(store.take_batches(world.sessions[name], [QUEUE]))
        for batch in batches:
            _publish(world, [batch])
            try:
                yield Run(store.published(batch, POSITION, is_repeated=False))
            except ReplyLost:
                yield Run(store.published(batch, POSITION, is_repeated=False))

    return program


def _nothing_lost(connection: Connection, world: JobWorld) -> None:
    """Publish and run what is left; each job must be in one message or have ended here, and never both."""
    gone = {job_id for ids in world.notes.get("stream", {}).values() for job_id in ids}
    assert not gone & world.notes.get("kept", set()), "jobs that are gone would run here"
    advance(connection, LATER)
    do(connection, sessions.expire())
    do(connection, sessions.rescue(everywhere=True))
    owner = session(connection)
    left = do(connection, store.take_batches(owner, [QUEUE]))
    _publish(world, left)
    for batch in left:
        do(connection, store.published(batch, POSITION, is_repeated=False))
    if got := take(connection, owner, 100):
        end(connection, owner, got, decided())
    found = Counter(job_id for ids in world.notes.get("stream", {}).values() for job_id in ids)
    found.update(states(connection).keys())
    assert found == Counter(world.ids), f"jobs are lost or there twice: {found}"


RELAY_AND_TAKE_OVER = Scenario(
    name="relay_and_take_over",
    capability="carriers",
    set_up=lambda connection: expired(connection, 2),
    programs={"A": relays("A"), "B": both(recovers(), takes_over("B"))},
    check=_nothing_lost,
    faulty=frozenset("AB"),
)


def _cancels(world: JobWorld) -> object:
    return transitions.cancel(world.ids[:1], "not needed")


RELAY_AND_CANCEL = Scenario(
    name="relay_and_cancel",
    capability="carriers",
    set_up=lambda connection: running(connection, 2),
    programs={"A": relays("A"), "C": does("cancel", _cancels)},
    check=_nothing_lost,
    faulty=frozenset("A"),
)

RELAY_AND_CLAIM = Scenario(
    name="relay_and_claim",
    capability="carriers",
    set_up=lambda connection: expired(connection, 2, "ABC"),
    programs={"A": relays("A"), "B": recovers(), "C": both(claims("C"), settles("C"))},
    check=_nothing_lost,
    faulty=frozenset("A"),
)


def _delivered(connection: Connection) -> JobWorld:
    """Return a world in which two workers have the same message of two jobs, which PostgreSQL does not know."""
    return JobWorld([FIRST_ID, FIRST_ID + 1], {name: session(connection, lease=30.0) for name in "AB"})


def stores(name: str, decision: Settlement | None = None) -> JobProgram:
    """Return a worker that has run the jobs of the message: it stores and settles them, then it acknowledges."""

    def program(world: JobWorld) -> Program:
        owner = world.sessions[name]
        rows = [row(job_id, POSITION) for job_id in world.ids]
        try:
            mine = yield Run(store.store(owner, rows))
        except ReplyLost:
            mine = yield Run(store.store(owner, rows))
        items = [settled(_claimed(job_id), decision or decided()) for job_id in sorted(mine)]
        if items:
            try:
                done = yield Run(settlement.settle(items[0].way, owner, items))
            except ReplyLost:
                done = yield Run(settlement.settle(items[0].way, owner, items))
                done |= yield Run(settlement.settled_before(owner, items))
            world.settled.setdefault(name, set()).update(done)
        world.notes["acknowledged"] = True

    return program


def _claimed(job_id: int) -> ClaimedJob:
    return ClaimedJob(job_id, 1, "work", QUEUE, 5, 0, None, msgspec.Raw(b"{}"), 0.0, 0.0)


def _ended_once(connection: Connection, world: JobWorld) -> None:
    settled_once(world)
    found = states(connection)
    assert found.keys() <= set(world.ids)
    if world.notes.get("acknowledged"):
        assert found.keys() == set(world.ids), f"an acknowledged message has lost jobs: {found}"


TWO_DELIVERIES = Scenario(
    name="two_deliveries",
    capability="carriers",
    set_up=_delivered,
    programs={"A": stores("A"), "B": stores("B")},
    check=_ended_once,
    faulty=frozenset("AB"),
)


def forgets() -> JobProgram:
    """Return a relay that sees the position of acknowledged messages, and deletes what was stored for them."""

    def program(world: JobWorld) -> Program:
        for _ in range(2):
            position = POSITION if world.notes.get("acknowledged") else 0
            yield Run(store.forget_stored(QUEUE, position))

    return program


DELIVERY_AFTER_ACKNOWLEDGEMENT = Scenario(
    name="delivery_after_acknowledgement",
    capability="carriers",
    set_up=_delivered,
    programs={"A": stores("A"), "F": forgets(), "B": stores("B")},
    check=_ended_once,
    faulty=frozenset("A"),
)

DELIVERY_AND_RESCUE = Scenario(
    name="delivery_and_rescue",
    capability="carriers",
    set_up=_delivered,
    programs={"A": stores("A"), "R": recovers(), "B": stores("B")},
    check=_ended_once,
    faulty=frozenset("A"),
)

SCENARIOS = (
    RELAY_AND_TAKE_OVER,
    RELAY_AND_CANCEL,
    RELAY_AND_CLAIM,
    TWO_DELIVERIES,
    DELIVERY_AFTER_ACKNOWLEDGEMENT,
    DELIVERY_AND_RESCUE,
)
