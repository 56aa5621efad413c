"""The world of scenarios about jobs: sessions, what each worker claimed and settled, and how a schedule ends."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sereno.jobs import settlement, transitions
from sereno.jobs.attempt import Settlement
from sereno.jobs.job import ClaimedJob
from sereno.worker import sessions
from tests.interleavings.program import Program, ReplyLost, Run
from tests.jobs.job_steps import Connection, add, advance, decided, do, end, session, settled, take, wanted

LEASE = 30.0
# Seconds by which the clock is advanced at the end: every lease has expired, and every job is due.
LATER = 7200.0
# Rounds of recovery and claims after which everything must have ended.
MOST_ROUNDS = 10


@dataclass
class JobWorld:
    """`claimed`: what a worker got and would run. `settled`: jobs whose settlement was accepted, by worker.

    `notes`: what a program wants its check to know. `lost`: notes whose first reply was lost.
    """

    ids: list[int]
    sessions: dict[str, int]
    claimed: dict[str, list[ClaimedJob]] = field(default_factory=dict)
    settled: dict[str, set[int]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)


JobProgram: TypeAlias = Callable[[JobWorld], Program]


def ready(connection: Connection, jobs: int = 1, workers: str = "AB", **options: Any) -> JobWorld:
    """Return a world of ready jobs, with a session for each worker."""
    return JobWorld(add(connection, jobs, **options), {name: session(connection, lease=LEASE) for name in workers})


def running(connection: Connection, jobs: int = 1, workers: str = "AB", **options: Any) -> JobWorld:
    """Return a world of jobs that the first worker runs."""
    world = ready(connection, jobs, workers, **options)
    first = workers[0]
    world.claimed[first] = take(connection, world.sessions[first], jobs)
    return world


def expired(connection: Connection, jobs: int = 1, workers: str = "AB") -> JobWorld:
    """Return a world in which the first worker runs jobs, and its lease has just expired."""
    world = running(connection, jobs, workers)
    connection.execute(
        "update sereno.sessions set lease_until = sereno.now() - interval '1 ms' where id = %s",
        [world.sessions[workers[0]]],
    )
    return world


def finished(connection: Connection, jobs: int = 1, workers: str = "AB", **options: Any) -> JobWorld:
    """Return a world of jobs that have succeeded."""
    world = ready(connection, jobs, workers, **options)
    owner = session(connection)
    end(connection, owner, take(connection, owner, jobs), decided())
    return world


def claims(name: str, slots: int = 2) -> JobProgram:
    """Return a worker that claims once. After a lost reply it releases what it does not know of, as workers do."""

    def program(world: JobWorld) -> Program:
        owner = world.sessions[name]
        try:
            got = yield Run(transitions.claim(owner, ("work",), [wanted(slots)]))
        except ReplyLost:
            yield Run(transitions.release_unlisted(owner, [], 0.0))
            return
        world.claimed.setdefault(name, []).extend(got.jobs)

    return program


def settles(name: str, decision: Settlement | None = None, *, side_rows: bool = False) -> JobProgram:
    """Return a worker that settles what it holds. After a lost reply it writes the outcomes again, as workers do."""

    def program(world: JobWorld) -> Program:
        owner, chosen = world.sessions[name], decision or decided()
        items = [settled(job, chosen, side_rows=side_rows) for job in world.claimed.get(name, [])]
        if not items:
            return
        try:
            done = yield Run(settlement.settle(items[0].way, owner, items), atomic=side_rows)
        except ReplyLost:
            done = yield Run(settlement.settle(items[0].way, owner, items), atomic=side_rows)
            done |= yield Run(settlement.settled_before(owner, items))
        world.settled.setdefault(name, set()).update(done)

    return program


def both(*programs: JobProgram) -> JobProgram:
    """Return a program that does one after the other."""

    def program(world: JobWorld) -> Program:
        for each in programs:
            yield from each(world)

    return program


def recovers() -> JobProgram:
    """Return the maintenance of a worker: dead sessions, their jobs, due jobs."""

    def program(_world: JobWorld) -> Program:
        yield Run(sessions.expire())
        yield Run(sessions.rescue())
        yield Run(transitions.promote())

    return program


def does(note: str, operation: Callable[[JobWorld], Any], *, atomic: bool = False) -> JobProgram:
    """Return a program of one operation, whose result is noted. After a lost reply its caller tries once more."""

    def program(world: JobWorld) -> Program:
        try:
            world.notes[note] = yield Run(operation(world), atomic=atomic)
        except ReplyLost:
            world.lost.add(note)
            world.notes[f"{note} again"] = yield Run(operation(world), atomic=atomic)

    return program


def states(connection: Connection) -> dict[int, str]:
    """Return the state of each job; fail if one is there twice."""
    rows = connection.execute(
        "select id, state from sereno.jobs union all select id, state from sereno.history"
    ).fetchall()
    twice = [job for job, count in Counter(job for job, _ in rows).items() if count > 1]
    assert not twice, f"jobs {twice} are live and finished, or finished twice: {rows}"
    return dict(rows)


def no_attempt_twice(world: JobWorld) -> None:
    """Fail if two workers, or one of them twice, would run the same attempt of a job."""
    runs = Counter((job.id, job.attempt) for jobs in world.claimed.values() for job in jobs)
    assert not runs or max(runs.values()) == 1, f"attempts were given twice: {runs}"


def settled_once(world: JobWorld) -> None:
    """Fail if the settlements of two workers were accepted for one job."""
    counts = Counter(job for jobs in world.settled.values() for job in jobs)
    assert not counts or max(counts.values()) == 1, f"jobs were settled by two workers: {world.settled}"


def nothing_lost(connection: Connection, world: JobWorld, gone: Collection[int] = ()) -> dict[int, str]:
    """Recover and run all that is left; return the final state of each job. Fail if one is missing or never ends.

    `gone`: jobs that were deleted.
    """
    no_attempt_twice(world)
    assert states(connection).keys() == set(world.ids) - set(gone), f"jobs are lost: {states(connection)}"
    advance(connection, LATER)
    for _ in range(MOST_ROUNDS):
        do(connection, sessions.expire())
        do(connection, sessions.rescue(everywhere=True))
        do(connection, transitions.promote())
        do(connection, settlement.check_links())
        owner = session(connection)
        got = take(connection, owner, 100)
        if got:
            do(
                connection,
                settlement.settle("succeed", owner, [settled(job, decided(), side_rows=True) for job in got]),
            )
        if not connection.execute("select from sereno.jobs limit 1").fetchall():
            break
    final = states(connection)
    stuck = {job: state for job, state in final.items() if state not in ("succeeded", "dead", "cancelled")}
    assert not stuck, f"jobs never end: {stuck}"
    assert final.keys() == set(world.ids) - set(gone), f"jobs are lost: {final}"
    return final
