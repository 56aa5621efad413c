"""The relay of carried queues: a worker publishes, another takes over, and an operator gives up the carrier.

The carrier is a dictionary of the world: what is published there is delivered at the end, once for each message id.
"""

from collections.abc import Callable

from sereno.carriers import store
from sereno.carriers.message import decode, stored_row
from sereno.carriers.store import RelayBatch
from sereno.database.statement import Operation
from sereno.jobs import settlement
from sereno.jobs.settlement import SettleResult
from sereno.worker import sessions
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.job_world import LATER, JobProgram, JobWorld, does, expired, running, states
from tests.jobs.job_steps import Connection, advance, decided, do, end, session, take

QUEUE = "default"
# Positions of a message and of its repetition.
FIRST, SECOND = 1, 2


def _world(make: Callable[..., JobWorld]) -> Callable[[Connection], JobWorld]:
    """Return a set-up in which worker A has claimed two jobs that it will publish."""

    def set_up(connection: Connection) -> JobWorld:
        world = make(connection, 2)
        world.notes["published"] = {}
        return world

    return set_up


def _publishes(world: JobWorld, batch: RelayBatch) -> Program:
    """Publish one message and delete it from PostgreSQL. After a lost reply it is published again, under its id."""
    world.notes["published"] = {**world.notes["published"], batch.id: batch.body}
    try:
        yield Run(store.published(batch, FIRST, is_repeated=False))
    except ReplyLost:
        yield Run(store.published(batch, FIRST, is_repeated=False))


def _carries() -> JobProgram:
    """Return worker A, which moves its jobs into a message and publishes it."""

    def program(world: JobWorld) -> Program:
        owner = world.sessions["A"]
        try:
            batch, _ = yield Run(store.carry(owner, QUEUE, world.ids))
        except ReplyLost:
            batches = yield Run(store.take_batches(owner, [QUEUE]))
            batch = batches[0] if batches else None
        if batch is not None:
            yield from _publishes(world, batch)

    return program


def _takes_over() -> JobProgram:
    """Return worker B, which declares dead sessions dead, and publishes what they left."""

    def program(world: JobWorld) -> Program:
        yield Run(sessions.expire())
        try:
            batches = yield Run(store.take_batches(world.sessions["B"], [QUEUE]))
        except ReplyLost:
            batches = yield Run(store.take_batches(world.sessions["B"], [QUEUE]))
        for batch in batches:
            yield from _publishes(world, batch)

    return program


def _gives_up(_world: JobWorld) -> Operation[int]:
    return store.return_batches(QUEUE)


def _each_job_ends_once(connection: Connection, world: JobWorld) -> None:
    """Deliver what was published, then run what is in PostgreSQL: each job has one outcome, and none is lost."""
    advance(connection, LATER)
    do(connection, sessions.expire())
    do(connection, sessions.rescue(everywhere=True))
    owner = session(connection)
    left = {batch.id: batch.body for batch in do(connection, store.take_batches(owner, [QUEUE]))}
    published: dict[int, bytes] = world.notes["published"] | left
    for position, (batch, body) in enumerate(published.items(), 1):
        rows = _rows(body, position)
        stored = do(connection, store.store(owner, rows))
        again = do(connection, store.store(owner, rows))
        assert stored == again, f"a second store has another result: {stored}, {again}"
        _settle(connection, owner, stored)
        do(connection, store.published(RelayBatch(batch, QUEUE, body), position, is_repeated=False))
    if rest := take(connection, owner):
        end(connection, owner, rest, decided())
    final = states(connection)
    assert final == dict.fromkeys(world.ids, "succeeded"), f"jobs are lost or have not ended: {final}"


def _settle(connection: Connection, owner: int, ids: set[int]) -> None:
    items = [SettleResult(job, 1, 0.0, decided()) for job in sorted(ids)]
    if items:
        done = do(connection, settlement.settle(items[0].way, owner, items))
        assert done == ids


RELAY_AND_GIVE_UP = Scenario(
    name="relay_and_give_up",
    capability="carriers",
    set_up=_world(running),
    programs={"A": _carries(), "O": does("give up", _gives_up)},
    check=_each_job_ends_once,
    faulty=frozenset("AO"),
)

RELAY_TAKEN_OVER = Scenario(
    name="relay_taken_over",
    capability="carriers",
    set_up=_world(expired),
    programs={"A": _carries(), "B": _takes_over(), "O": does("give up", _gives_up)},
    check=_each_job_ends_once,
    faulty=frozenset("AB"),
)


def _stored_twice(connection: Connection) -> JobWorld:
    """Return a world in which the jobs of a message have run, and nothing in PostgreSQL says that it was published."""
    world = expired(connection, 2)
    batch, _ = do(connection, store.carry(world.sessions["A"], QUEUE, world.ids))
    assert batch is not None
    owner = session(connection)
    _settle(connection, owner, do(connection, store.store(owner, _rows(batch.body, FIRST))))
    advance(connection, store.KEEP_STORED + 60)
    world.notes |= {"acknowledged": FIRST, "again": set()}
    return world


def _rows(body: bytes, position: int) -> list[dict[str, object]]:
    decoded = decode(body)
    return [
        stored_row(decoded, index, None) | {"held_for": 0.0, "position": position} for index in range(len(decoded.ids))
    ]


def _publishes_again() -> JobProgram:
    """Return worker B, which publishes the message again, and runs its jobs if it is not known that they have run."""

    def program(world: JobWorld) -> Program:
        yield Run(sessions.expire())
        owner = world.sessions["B"]
        try:
            batches = yield Run(store.take_batches(owner, [QUEUE]))
        except ReplyLost:
            batches = yield Run(store.take_batches(owner, [QUEUE]))
        for batch in batches:
            try:
                yield Run(store.published(batch, SECOND, is_repeated=True))
            except ReplyLost:
                yield Run(store.published(batch, SECOND, is_repeated=True))
            try:
                again = yield Run(store.store(owner, _rows(batch.body, SECOND)))
            except ReplyLost:
                again = yield Run(store.store(owner, _rows(batch.body, SECOND)))
            world.notes |= {"again": again, "acknowledged": SECOND}

    return program


def _forgets() -> JobProgram:
    """Return a relay that sees up to where messages were acknowledged, and deletes what was stored for them."""

    def program(world: JobWorld) -> Program:
        for _ in range(3):
            yield Run(store.forget_stored(QUEUE, world.notes["acknowledged"]))

    return program


def _nothing_ran_again(_connection: Connection, world: JobWorld) -> None:
    assert not world.notes["again"], f"jobs were stored a second time: {world.notes['again']}"


REPEATED_MESSAGE = Scenario(
    name="repeated_message",
    capability="carriers",
    set_up=_stored_twice,
    programs={"B": _publishes_again(), "F": _forgets()},
    check=_nothing_ran_again,
    faulty=frozenset("B"),
)

SCENARIOS = (RELAY_AND_GIVE_UP, RELAY_TAKEN_OVER, REPEATED_MESSAGE)
