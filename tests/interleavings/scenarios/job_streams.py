"""Scenarios of chunks that jobs emit: their order, their fence, and their retention."""

from functools import partial
from typing import Any

import msgspec

from sereno.database.statement import Operation
from sereno.jobs import settlement, transitions
from sereno.jobs.chunks import ChunkBatch
from sereno.jobs.job import ClaimedJob
from sereno.jobs.job_stream import forget_ended, write_chunks
from sereno.jobs.settlement import SettleResult
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import AnyScenario, Scenario
from tests.interleavings.scenarios.job_world import (
    JobProgram,
    JobWorld,
    both,
    claims,
    does,
    expired,
    nothing_lost,
    recovers,
    running,
    settled_once,
)
from tests.jobs.job_steps import Connection, decided, do

RETENTION = 60.0


def _chunks(job: ClaimedJob, number: int) -> ChunkBatch:
    """Return a batch of one chunk, whose value names its attempt and number."""
    return ChunkBatch(job.id, job.attempt, number, msgspec.Raw(b"[%d]" % (100 * job.attempt + number)))


def _emits(name: str, number: int) -> JobProgram:
    """Return a worker that writes a chunk, and again after a lost reply."""

    def program(world: JobWorld) -> Program:
        for job in world.claimed.get(name, []):
            try:
                yield Run(write_chunks(world.sessions[name], [_chunks(job, number)]))
            except ReplyLost:
                yield Run(write_chunks(world.sessions[name], [_chunks(job, number)]))

    return program


def _ends(name: str, *numbers: int) -> JobProgram:
    """Return a worker that settles its job with the chunks that it has not stored for certain."""

    def program(world: JobWorld) -> Program:
        owner = world.sessions[name]
        items = [
            SettleResult(
                job.id, job.attempt, 0.5, decided(), side_rows=True, chunks=[_chunks(job, each) for each in numbers]
            )
            for job in world.claimed.get(name, [])
        ]
        if not items:
            return
        try:
            done = yield Run(settlement.settle("succeed", owner, items), atomic=True)
        except ReplyLost:
            done = yield Run(settlement.settle("succeed", owner, items), atomic=True)
            done |= yield Run(settlement.settled_before(owner, items))
        world.settled.setdefault(name, set()).update(done)

    return program


def _stored(connection: Connection) -> list[tuple[int, int, Any]]:
    rows = connection.execute("select attempt, number, chunks -> 0 from sereno.job_chunks order by 1, 2").fetchall()
    return [(attempt, number, value) for attempt, number, value in rows]


def _whole(connection: Connection, world: JobWorld) -> None:
    """The chunks are those of one attempt, from the first on, and all of them if it has settled the job."""
    settled_once(world)
    stored = _stored(connection)
    attempts = {attempt for attempt, _, _ in stored}
    assert len(attempts) <= 1, f"chunks of several attempts: {stored}"
    assert [number for _, number, _ in stored] == list(range(1, len(stored) + 1)), f"chunks are missing: {stored}"
    assert all(value == 100 * attempt + number for attempt, number, value in stored), stored
    for name, done in world.settled.items():
        if done:
            (job,) = world.claimed[name][-1:]
            assert attempts == {job.attempt}, f"attempt {job.attempt} was settled, but the chunks are {stored}"
            assert len(stored) == 2, f"the settled attempt has lost a chunk: {stored}"
    nothing_lost(connection, world)


CHUNKS_AND_EXPIRY = Scenario(
    name="chunks_and_expiry",
    capability="streams",
    set_up=expired,
    programs={
        "A": both(_emits("A", 1), _ends("A", 1, 2)),
        "R": recovers(),
        "B": both(claims("B"), _ends("B", 1, 2)),
    },
    check=_whole,
    faulty=frozenset("AB"),
)

# The periodic write and the settlement run on two connections of one worker, and may hold the same chunks.
CHUNKS_WRITTEN_TWICE = Scenario(
    name="chunks_written_twice",
    capability="streams",
    set_up=partial(running, workers="A"),
    programs={"F": _emits("A", 1), "A": _ends("A", 1, 2)},
    check=_whole,
    faulty=frozenset("FA"),
)


def _ended(connection: Connection) -> JobWorld:
    """Return a world with a finished job whose chunks are about to be deleted."""
    world = running(connection, workers="AB")
    (job,) = world.claimed["A"]
    do(connection, write_chunks(world.sessions["A"], [_chunks(job, 1)]))
    item = SettleResult(job.id, job.attempt, 0.5, decided(), side_rows=True)
    do(connection, settlement.settle("succeed", world.sessions["A"], [item]))
    connection.execute("update sereno.job_streams set ended_at = sereno.now() - interval '1 hour'")
    world.claimed.clear()
    return world


def _requeues(world: JobWorld) -> Operation[Any]:
    return transitions.requeue(world.ids)


def _forgets(_world: JobWorld) -> Operation[bool]:
    return forget_ended(RETENTION)


def _not_forgotten(connection: Connection, world: JobWorld) -> None:
    """Maintenance deletes no chunk of the attempt that runs again."""
    if world.settled.get("B"):
        _whole(connection, world)
    else:
        nothing_lost(connection, world)


CHUNKS_AND_REQUEUE = Scenario(
    name="chunks_and_requeue",
    capability="streams",
    set_up=_ended,
    programs={
        "B": both(does("requeue", _requeues), claims("B"), _emits("B", 1), _ends("B", 2)),
        "M": does("forget", _forgets),
    },
    check=_not_forgotten,
    faulty=frozenset("B"),
)

SCENARIOS: list[AnyScenario] = [CHUNKS_AND_EXPIRY, CHUNKS_WRITTEN_TWICE, CHUNKS_AND_REQUEUE]
