"""Jobs that wait for others, and groups: settlements, cancels, requeues and checks of dependencies at once."""

from functools import partial
from typing import Any

import msgspec
import psycopg

from sereno.database.statement import Operation
from sereno.jobs import group_store, settlement, transitions
from sereno.jobs.attempt import Dead
from sereno.jobs.group_store import NewGroup
from sereno.jobs.job import EnqueuedJob, OnDead
from sereno.jobs.settlement import check_links
from tests.interleavings.program import Program, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.job_world import (
    JobWorld,
    both,
    claims,
    does,
    nothing_lost,
    settled_once,
    settles,
    states,
)
from tests.jobs.job_steps import Connection, add, decided, do, end, new, session, settled, take

DEAD = decided(Dead("no"))


def _world(connection: Connection, ids: list[int], workers: str = "AB") -> JobWorld:
    return JobWorld(ids, {name: session(connection) for name in workers})


def _each_runs_one(connection: Connection, world: JobWorld) -> JobWorld:
    """Let each worker run one of the ready jobs."""
    for name, owner in world.sessions.items():
        world.claimed[name] = take(connection, owner, 1)
    return world


def _two_before_one(connection: Connection) -> JobWorld:
    """Return a world of two running jobs, and one that waits for both."""
    first = add(connection, 2)
    return _each_runs_one(connection, _world(connection, [*first, *add(connection, after=first)]))


def _all_succeed(connection: Connection, world: JobWorld) -> None:
    settled_once(world)
    ends = connection.execute("select count(*) from sereno.jobs where state = 'waiting'").fetchall()
    if len(world.settled) == len(world.claimed):
        assert ends == [(0,)], "its predecessors have ended, and it still waits"
    assert set(nothing_lost(connection, world).values()) == {"succeeded"}


TWO_PREDECESSORS = Scenario(
    name="two_predecessors",
    capability="links",
    set_up=_two_before_one,
    programs={"A": settles("A", side_rows=True), "B": settles("B", side_rows=True)},
    check=_all_succeed,
    faulty=frozenset("AB"),
)


def _one_runs(connection: Connection) -> JobWorld:
    return _each_runs_one(connection, _world(connection, add(connection), "A"))


def _enqueue_after(world: JobWorld) -> Operation[list[EnqueuedJob]]:
    return transitions.enqueue([new(after=world.ids[:1])])


def _checks(_world: JobWorld) -> Program:
    yield Run(check_links())


def _successor_runs(connection: Connection, world: JobWorld) -> None:
    world.ids = sorted(states(connection))
    assert set(nothing_lost(connection, world).values()) == {"succeeded"}


ENQUEUE_AND_SETTLE = Scenario(
    name="enqueue_after_and_settle",
    capability="links",
    set_up=_one_runs,
    programs={"A": settles("A", side_rows=True), "E": does("made", _enqueue_after, atomic=True), "C": _checks},
    check=_successor_runs,
    faulty=frozenset("AC"),
)

ENQUEUE_AND_CLAIM = Scenario(
    name="enqueue_after_and_claim",
    capability="links",
    set_up=lambda connection: _world(connection, add(connection), "A"),
    programs={
        "A": both(claims("A"), settles("A", side_rows=True)),
        "E": does("made", _enqueue_after, atomic=True),
        "C": _checks,
    },
    check=_successor_runs,
    faulty=frozenset("AE"),
)


def _enqueues_after(world: JobWorld) -> Program:
    """Enqueue a job after the first one, unless that one is over already and has left no row."""
    try:
        world.notes["made"] = yield Run(_enqueue_after(world), atomic=True)
    except psycopg.errors.InvalidParameterValue:
        world.notes["made"] = []


def _forgets(world: JobWorld) -> Program:
    items = [settled(job, decided(), keep_history=False) for job in world.claimed["A"]]
    yield Run(settlement.settle("forget", world.sessions["A"], items))


def _follows(expected: str, connection: Connection, world: JobWorld) -> None:
    """The first job has left no row; the job after it, if there is one, ends as expected."""
    gone = world.ids
    world.ids = [*gone, *(job.id for job in world.notes["made"])]
    assert set(nothing_lost(connection, world, gone).values()) <= {expected}


ENQUEUE_AND_FORGET = Scenario(
    name="enqueue_after_and_forget",
    capability="links",
    set_up=_one_runs,
    programs={"A": _forgets, "E": _enqueues_after, "C": _checks},
    check=partial(_follows, "succeeded"),
    faulty=frozenset("C"),
)


def _deletes(world: JobWorld) -> Program:
    yield Run(transitions.delete(world.ids[:1]), atomic=True)


ENQUEUE_AND_DELETE = Scenario(
    name="enqueue_after_and_delete",
    capability="links",
    set_up=lambda connection: JobWorld(add(connection), {}),
    programs={"D": _deletes, "E": _enqueues_after, "C": _checks},
    check=partial(_follows, "cancelled"),
    faulty=frozenset("C"),
)


def _chain(connection: Connection) -> JobWorld:
    """Return a world of a running job, one that waits for it, and one that waits for that one."""
    first = add(connection)
    second = add(connection, after=first)
    third = add(connection, after=second)
    return _each_runs_one(connection, _world(connection, [*first, *second, *third], "A"))


def _cancel_second(world: JobWorld) -> Operation[Any]:
    return transitions.cancel(world.ids[1:2], "not wanted")


def _third_follows_second(connection: Connection, world: JobWorld) -> None:
    final = nothing_lost(connection, world)
    first, second, third = world.ids
    assert final[first] == "succeeded"
    assert final[second] == final[third], f"the third job did not follow the second one: {final}"


CANCEL_AND_SETTLE = Scenario(
    name="cancel_in_a_chain",
    capability="links",
    set_up=_chain,
    programs={"A": settles("A", side_rows=True), "B": does("cancel", _cancel_second, atomic=True), "C": _checks},
    check=_third_follows_second,
    faulty=frozenset("AB"),
)


def _waits_for_dead(connection: Connection) -> JobWorld:
    first = add(connection)
    second = add(connection, after=first)
    world = _world(connection, [*first, *second])
    owner = session(connection)
    end(connection, owner, take(connection, owner, 1), DEAD)
    return world


def _requeue_first(world: JobWorld) -> Operation[list[int]]:
    return transitions.requeue(world.ids[:1])


def _delete_first(world: JobWorld) -> Operation[list[int]]:
    return transitions.delete(world.ids[:1])


def _deleted_or_run(connection: Connection, world: JobWorld) -> None:
    first, second = world.ids
    found = states(connection)
    if first in found and found[first] == "dead":
        do(connection, transitions.requeue([first]))
    gone = [] if first in found else [first]
    final = nothing_lost(connection, world, gone)
    assert final[second] == ("cancelled" if gone else "succeeded")


REQUEUE_AND_RUN = Scenario(
    name="requeue_of_a_predecessor",
    capability="links",
    set_up=_waits_for_dead,
    programs={
        "R": does("requeue", _requeue_first, atomic=True),
        "B": both(claims("B"), settles("B", side_rows=True)),
        "C": _checks,
    },
    check=_deleted_or_run,
    faulty=frozenset("RB"),
)


DELETE_OR_REQUEUE = Scenario(
    name="delete_of_a_predecessor",
    capability="links",
    set_up=_waits_for_dead,
    programs={
        "R": does("requeue", _requeue_first, atomic=True),
        "D": does("delete", _delete_first, atomic=True),
        "C": _checks,
    },
    check=_deleted_or_run,
    faulty=frozenset("DC"),
)


def _unknown_to_worker(connection: Connection) -> JobWorld:
    """Return a world of two running jobs, and one that was enqueued after them while they ran."""
    world = _each_runs_one(connection, _world(connection, add(connection, 2)))
    world.ids += add(connection, after=world.ids)
    # The worker of one job was notified.
    world.claimed["A"] = [msgspec.structs.replace(job, link=0) for job in world.claimed["A"]]
    return world


def _waits_for_the_other(connection: Connection, world: JobWorld) -> None:
    last = world.ids[-1]
    assert states(connection)[last] == "waiting", "it did not wait for its second predecessor"
    assert set(nothing_lost(connection, world).values()) == {"succeeded"}


TWO_CHECKS = Scenario(
    name="two_checks_and_settle",
    capability="links",
    set_up=_unknown_to_worker,
    programs={"A": settles("A", side_rows=True), "C": _checks, "D": _checks},
    check=_waits_for_the_other,
    faulty=frozenset("AC"),
)


def _group(connection: Connection, on_dead: OnDead = "wait") -> JobWorld:
    """Return a world of a group of two running jobs and one ready one, and the job that follows them."""
    with connection.transaction():
        made = do(connection, group_store.enqueue_group(NewGroup([new(), new(), new()], new(), on_dead)))
    assert made.then is not None
    ids = [row[0] for row in connection.execute("select id from sereno.jobs order by id").fetchall()]
    return _each_runs_one(connection, _world(connection, ids))


GROUP_ENDS = Scenario(
    name="end_of_a_group",
    capability="links",
    set_up=_group,
    programs={
        "A": both(settles("A", side_rows=True), claims("A"), settles("A", side_rows=True)),
        "B": settles("B", side_rows=True),
    },
    check=_successor_runs,
    faulty=frozenset("AB"),
)


def _cancel_members(_world: JobWorld) -> Program:
    yield Run(group_store.cancel_members(), atomic=True)


def _group_is_cancelled(connection: Connection, world: JobWorld) -> None:
    *_, last = world.ids
    final = nothing_lost(connection, world)
    died = "dead" in final.values()
    assert final[last] == ("cancelled" if died else "succeeded"), f"the job after the group: {final}"


DEAD_IN_GROUP = Scenario(
    name="dead_job_of_a_group",
    capability="links",
    set_up=partial(_group, on_dead="cancel"),
    programs={"A": settles("A", DEAD, side_rows=True), "B": settles("B", side_rows=True), "M": _cancel_members},
    check=_group_is_cancelled,
    faulty=frozenset("AM"),
)

SCENARIOS = [
    TWO_PREDECESSORS,
    ENQUEUE_AND_SETTLE,
    ENQUEUE_AND_CLAIM,
    ENQUEUE_AND_FORGET,
    ENQUEUE_AND_DELETE,
    CANCEL_AND_SETTLE,
    REQUEUE_AND_RUN,
    DELETE_OR_REQUEUE,
    TWO_CHECKS,
    GROUP_ENDS,
    DEAD_IN_GROUP,
]
