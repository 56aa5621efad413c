"""Bulk operations: two workers that carry out one operation, and a batch beside a claim or a requeue."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from sereno import Dead
from sereno.bulk import operations
from sereno.jobs import bulk, transitions
from sereno.jobs.bulk import BulkBatch
from sereno.jobs.filters import JobFilter
from sereno.jobs.job import ClaimedJob
from sereno.jobs.lifecycle import LIVE
from sereno.jobs.rows import JobAction
from sereno.worker import sessions
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.job_world import (
    LATER,
    MOST_ROUNDS,
    JobWorld,
    both,
    claims,
    nothing_lost,
    ready,
    settles,
    states,
)
from tests.jobs.job_steps import Connection, add, advance, decided, do, end, session, take, wanted


def _begun(connection: Connection, action: JobAction, batches: int = 1) -> JobWorld:
    """Return a world in which A runs the job of a bulk operation on ready jobs, one in each batch."""
    world = ready(connection, 1)
    for number in range(1, batches):
        # So far apart that one batch does not reach both.
        connection.execute(
            "select setval(pg_get_serial_sequence('sereno.jobs', 'id'), %s)", [number * bulk.STRETCH + 1]
        )
        world.ids += add(connection, 1)
    begun = do(connection, operations.begin(action, JobFilter(task="work"), yes=True, actor="me"))
    world.notes["operation"] = begun.id
    (world.notes["A"],) = take(connection, world.sessions["A"], 1, tasks=(bulk.TASK,))
    return world


def _taken_over(connection: Connection) -> JobWorld:
    """Return a world in which the session of A was declared dead while it carries out a cancellation."""
    world = _begun(connection, "job.cancel", batches=2)
    connection.execute(
        "update sereno.sessions set lease_until = sereno.now() - interval '1 ms' where id = %s", [world.sessions["A"]]
    )
    do(connection, sessions.expire())
    return world


def _carries_out(world: JobWorld, name: str, job: ClaimedJob) -> Program:
    """Run batch after batch, as the task does. After a lost reply it tries again."""
    step = BulkBatch(0.0)
    while step.wait is not None:
        try:
            step = yield Run(_batch(world, world.sessions[name], job), atomic=True)
        except ReplyLost:
            continue


def _batch(world: JobWorld, owner: int, job: ClaimedJob) -> Any:
    return bulk.batch(world.notes["operation"], job.id, job.attempt, owner)


def _continues(world: JobWorld) -> Program:
    """The worker that holds the job, or believes so."""
    yield from _carries_out(world, "A", world.notes["A"])


def _takes_over(world: JobWorld) -> Program:
    """Another worker, which rescues the job and claims it."""
    yield Run(sessions.rescue())
    got = yield Run(transitions.claim(world.sessions["B"], (bulk.TASK,), [wanted(1)]))
    for job in got.jobs:
        yield from _carries_out(world, "B", job)


def _finish(connection: Connection, world: JobWorld) -> tuple[str, int, int]:
    """Carry out the rest of the operation, and end its job. Return its state, and the jobs changed and left alone."""
    for _ in range(MOST_ROUNDS):
        advance(connection, LATER)
        do(connection, sessions.expire())
        do(connection, sessions.rescue(everywhere=True))
        do(connection, transitions.promote())
        owner = session(connection)
        for job in take(connection, owner, 1, tasks=(bulk.TASK,)):
            step = BulkBatch(0.0)
            while step.wait is not None:
                with connection.transaction():
                    step = do(connection, _batch(world, owner, job))
            end(connection, owner, [job], decided(), keep_history=False)
        found = connection.execute(
            "select state, done + stop_requested, left_alone from sereno.bulk_operations "
            "where not exists (select from sereno.jobs where id = job_id)"
        ).fetchone()
        if found is not None:
            state, changed, left = found
            return state, changed, left
    raise AssertionError("the job of the operation never ends")


def _changed(connection: Connection, action: JobAction) -> Sequence[int]:
    """Return the jobs that the operation has changed, according to the audit log."""
    rows = connection.execute("select detail -> 'ids' from sereno.audit where action = %s", [action]).fetchall()
    return [job for (ids,) in rows for job in ids]


def _each_once(connection: Connection, world: JobWorld) -> None:
    state, changed, left = _finish(connection, world)
    assert (state, changed, left) == ("done", len(world.ids), 0)
    assert Counter(_changed(connection, "job.cancel")) == Counter(world.ids), "a job was changed twice or not at all"
    assert set(nothing_lost(connection, world).values()) == {"cancelled"}


TWO_BULK_WORKERS = Scenario(
    name="two_bulk_workers",
    capability="jobs",
    set_up=_taken_over,
    programs={"A": _continues, "B": _takes_over},
    check=_each_once,
)


def _deleted_or_run(connection: Connection, world: JobWorld) -> None:
    state, changed, left = _finish(connection, world)
    deleted = _changed(connection, "job.delete")
    assert (state, changed) == ("done", len(deleted))
    assert changed + left <= len(world.ids)
    run = {job.id for job in world.claimed.get("B", [])}
    assert not run & set(deleted), f"jobs {run} were run, and {deleted} were deleted"
    nothing_lost(connection, world, deleted)


BULK_DELETE_AND_CLAIM = Scenario(
    name="bulk_delete_and_claim",
    capability="jobs",
    set_up=partial(_begun, action="job.delete"),
    programs={"A": _continues, "B": both(claims("B"), settles("B"))},
    check=_deleted_or_run,
    faulty=frozenset("A"),
)


def _dead(connection: Connection) -> JobWorld:
    """Return a world in which A runs the job of a bulk retry of a dead job."""
    world = ready(connection, 1)
    owner = session(connection)
    end(connection, owner, take(connection, owner, 1), decided(Dead("no")))
    begun = do(connection, operations.begin("job.retry", JobFilter(states=["dead"]), yes=True, actor="me"))
    world.notes["operation"] = begun.id
    (world.notes["A"],) = take(connection, world.sessions["A"], 1, tasks=(bulk.TASK,))
    return world


def _requeues(world: JobWorld) -> Program:
    """An operator, who retries the same job by its id."""
    yield Run(transitions.requeue(world.ids))


def _retried_by_one(connection: Connection, world: JobWorld) -> None:
    """A job that the operator has retried, and that has succeeded since, is not run again."""
    state, changed, left = _finish(connection, world)
    assert (state, changed + left) in (("done", 0), ("done", 1))
    succeeded = {job for done in world.settled.values() for job in done}
    again = succeeded & {job for job, found in states(connection).items() if found in LIVE}
    assert not again, f"jobs {again} have succeeded and were retried"
    assert set(nothing_lost(connection, world).values()) == {"succeeded"}


BULK_RETRY_AND_REQUEUE = Scenario(
    name="bulk_retry_and_requeue",
    capability="jobs",
    set_up=_dead,
    programs={"A": _continues, "B": both(_requeues, claims("B"), settles("B"))},
    check=_retried_by_one,
    faulty=frozenset("A"),
)

SCENARIOS = (TWO_BULK_WORKERS, BULK_DELETE_AND_CLAIM, BULK_RETRY_AND_REQUEUE)
