"""Releases: workers of two versions, and jobs that become dead letters while a worker that can run them starts."""

from sereno.database.statement import Operation
from sereno.jobs import requirements, transitions
from sereno.jobs.job import JobOptions, NewJob
from sereno.worker import sessions
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.job_world import (
    JobProgram,
    JobWorld,
    both,
    claims,
    does,
    settled_once,
    settles,
    states,
)
from tests.jobs.job_steps import Connection, add, advance, decided, do, end, take, wanted

GRACE = 900.0
# Seconds: no lease of the set-up expires while the clock is advanced by the grace.
LONG_LEASE = 100_000.0
NEW: dict[str, object] = {"versions": {"work": 2}, "keys": []}


def _session(connection: Connection, capabilities: dict[str, object] | None, lease: float = LONG_LEASE) -> int:
    return do(connection, _registers(capabilities, lease))[0]


def _registers(capabilities: dict[str, object] | None, lease: float) -> Operation[tuple[int, dict[str, int]]]:
    return sessions.register(
        host="here",
        pid=1,
        version="0",
        queues={"default": 10},
        tasks=["work"],
        lease=lease,
        capabilities=capabilities,
    )


def _mixed(connection: Connection) -> JobWorld:
    """Return a world with a plain job and one of version 2, and workers O of the old and N of the new version."""
    job = NewJob("work", b"{}", JobOptions(queue="default", priority=5), requires=b'{"version":2}')
    newer = do(connection, transitions.enqueue([job]))[0].id
    world = JobWorld([newer, *add(connection)], {"O": _session(connection, None), "N": _session(connection, NEW)})
    world.notes["newer"] = newer
    return world


def _overdue(connection: Connection) -> JobWorld:
    """Return the same world without N, after the grace."""
    world = _mixed(connection)
    connection.execute("delete from sereno.sessions where id = %s", [world.sessions.pop("N")])
    advance(connection, GRACE + 1)
    return world


def _only_by_the_new_one(connection: Connection, world: JobWorld) -> None:
    settled_once(world)
    assert world.notes["newer"] not in {job.id for job in world.claimed.get("O", [])}, "an old worker got a newer job"
    final = _finish(connection)
    assert set(final.values()) == {"succeeded"}, f"jobs did not end: {final}"
    assert final.keys() == set(world.ids)


def _finish(connection: Connection) -> dict[int, str]:
    """Recover and run what is left by a worker that can run everything; return the final states."""
    advance(connection, 2 * LONG_LEASE)
    do(connection, sessions.expire())
    do(connection, sessions.rescue(everywhere=True))
    owner = _session(connection, NEW)
    if left := take(connection, owner):
        end(connection, owner, left, decided())
    return states(connection)


OLD_AND_NEW_WORKER = Scenario(
    name="old_and_new_worker",
    capability="releases",
    set_up=_mixed,
    programs={"O": both(claims("O"), settles("O")), "N": both(claims("N"), settles("N"))},
    check=_only_by_the_new_one,
    faulty=frozenset("ON"),
    never_waits=True,
    lease=LONG_LEASE,
)


def _buries(_world: JobWorld) -> Operation[list[tuple[int, str]]]:
    return requirements.bury_unmet(GRACE)


def _starts_and_claims() -> JobProgram:
    """Return a worker of the new version that starts, claims and settles."""

    def program(world: JobWorld) -> Program:
        try:
            world.sessions["N"], _ = yield Run(_registers(NEW, LONG_LEASE))
            got = yield Run(transitions.claim(world.sessions["N"], ("work",), [wanted(2)]))
        except ReplyLost:
            return
        world.claimed.setdefault("N", []).extend(got.jobs)
        yield from settles("N")(world)

    return program


def _buried_or_run(connection: Connection, world: JobWorld) -> None:
    settled_once(world)
    newer = world.notes["newer"]
    buried = {job for note in ("bury", "bury again") for job, _ in world.notes.get(note, [])}
    assert buried <= {newer}, f"other jobs were buried: {buried}"
    claimed = {job.id for jobs in world.claimed.values() for job in jobs}
    assert not buried & claimed, "a job was buried that a worker got"
    final = _finish(connection)
    assert final.keys() == set(world.ids), f"jobs are lost: {final}"
    if newer in claimed:
        assert final[newer] == "succeeded"
    assert all(state == "succeeded" for job, state in final.items() if job != newer)


BURY_AND_START = Scenario(
    name="bury_and_start",
    capability="releases",
    set_up=_overdue,
    programs={"B": does("bury", _buries), "N": _starts_and_claims()},
    check=_buried_or_run,
    faulty=frozenset("BN"),
    never_waits=True,
    lease=LONG_LEASE,
)


def _cancels(world: JobWorld) -> Operation[tuple[list[int], list[int]]]:
    return transitions.cancel([world.notes["newer"]], "not needed")


def _ended_once(connection: Connection, world: JobWorld) -> None:
    buried = {job for note in ("one", "two") for job, _ in world.notes.get(note, [])}
    cancelled = set(world.notes.get("cancel", ([], []))[0])
    assert not buried & cancelled, "a job was buried and cancelled"
    final = _finish(connection)
    assert final.keys() == set(world.ids), f"jobs are lost: {final}"


TWO_BURY_AND_CANCEL = Scenario(
    name="two_bury_and_cancel",
    capability="releases",
    set_up=_overdue,
    programs={"A": does("one", _buries), "B": does("two", _buries), "C": does("cancel", _cancels)},
    check=_ended_once,
    faulty=frozenset("A"),
    lease=LONG_LEASE,
)

SCENARIOS = (OLD_AND_NEW_WORKER, BURY_AND_START, TWO_BURY_AND_CANCEL)
