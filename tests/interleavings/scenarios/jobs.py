"""Jobs: claim, settle, cancel, requeue, promote, pause, and sessions whose lease has expired."""

from collections import Counter
from functools import partial

from sereno.database.statement import Operation
from sereno.errors import LeaseLost
from sereno.jobs import pauses, settlement, transitions
from sereno.jobs.attempt import Snooze
from sereno.jobs.job import EnqueuedJob
from sereno.worker import sessions
from tests.interleavings.program import Program, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.job_world import (
    LEASE,
    JobWorld,
    both,
    claims,
    does,
    expired,
    finished,
    nothing_lost,
    ready,
    recovers,
    running,
    settled_once,
    settles,
    states,
)
from tests.jobs.job_steps import Connection, decided, do, new, wanted

A = frozenset("A")


def _every_job_ends(connection: Connection, world: JobWorld) -> None:
    settled_once(world)
    for name, done in world.settled.items():
        missing = {job.id for job in world.claimed[name]} - done
        assert not missing, f"{name} ran jobs {missing}, and its settlement was refused"
    assert set(nothing_lost(connection, world).values()) == {"succeeded"}


def _fenced(connection: Connection, world: JobWorld) -> None:
    settled_once(world)
    assert set(nothing_lost(connection, world).values()) == {"succeeded"}


TWO_CLAIMS = Scenario(
    name="two_claims",
    capability="jobs",
    set_up=partial(ready, jobs=3),
    programs={"A": both(claims("A"), settles("A")), "B": both(claims("B"), settles("B"))},
    check=_every_job_ends,
    faulty=A,
    never_waits=True,
)


def _cancelled_or_done(connection: Connection, world: JobWorld) -> None:
    at_once, requested = world.notes.get("cancel", ([], []))
    again = world.notes.get("cancel again", ([], []))
    assert not set(at_once) & {job.id for jobs in world.claimed.values() for job in jobs}, "a cancelled job was run"
    assert not set(at_once) & set(requested)
    found = nothing_lost(connection, world)
    for job in {*at_once, *again[0]}:
        assert found[job] == "cancelled", f"job {job} was cancelled and is {found[job]}"


def _cancel(world: JobWorld) -> Operation[tuple[list[int], list[int]]]:
    return transitions.cancel(world.ids, "no longer needed")


CLAIM_AND_CANCEL = Scenario(
    name="claim_and_cancel",
    capability="jobs",
    set_up=partial(ready, jobs=2),
    programs={"A": both(claims("A"), settles("A")), "B": does("cancel", _cancel)},
    check=_cancelled_or_done,
    faulty=frozenset("AB"),
)

SETTLE_AND_CANCEL = Scenario(
    name="settle_and_cancel",
    capability="jobs",
    set_up=running,
    programs={"A": settles("A"), "B": does("cancel", _cancel), "C": both(claims("B"), settles("B"))},
    check=_cancelled_or_done,
    faulty=frozenset("AB"),
)

DEAD_SESSION = Scenario(
    name="dead_session",
    capability="jobs",
    set_up=partial(expired, jobs=2),
    programs={"A": settles("A"), "R": recovers(), "B": both(claims("B"), settles("B"))},
    check=_fenced,
    faulty=frozenset("AB"),
)


def _dead(connection: Connection) -> JobWorld:
    """Return a world in which the session of a worker that runs jobs was declared dead."""
    world = expired(connection, 2)
    do(connection, sessions.expire())
    return world


def _rescues(_world: JobWorld) -> Program:
    yield Run(sessions.rescue())


TWO_RESCUES = Scenario(
    name="two_rescues",
    capability="jobs",
    set_up=_dead,
    programs={"R": _rescues, "S": _rescues, "B": both(claims("B"), settles("B"))},
    check=_every_job_ends,
    faulty=frozenset("R"),
    never_waits=True,
)


def _alive_or_dead(connection: Connection, world: JobWorld) -> None:
    kept = world.sessions["A"] in world.notes["keep"]
    row = connection.execute("select state from sereno.sessions where id = %s", [world.sessions["A"]]).fetchone()
    assert row == (("alive",) if kept else ("dead",)), f"kept {kept}, but the session is {row}"
    if kept:
        assert set(world.settled.get("A", set())) == set(world.ids), "a live session was fenced"
    _fenced(connection, world)


def _keeps_and_settles(world: JobWorld) -> Program:
    world.notes["keep"] = yield Run(sessions.keep([world.sessions["A"]], LEASE))
    yield from settles("A")(world)


HEARTBEAT_AND_EXPIRY = Scenario(
    name="heartbeat_and_expiry",
    capability="jobs",
    set_up=expired,
    programs={"A": _keeps_and_settles, "R": recovers(), "S": recovers()},
    check=_alive_or_dead,
)

LOST_CLAIM = Scenario(
    name="lost_claim",
    capability="jobs",
    set_up=partial(ready, jobs=2),
    programs={
        "A": both(claims("A"), settles("A")),
        "B": both(claims("B"), settles("B")),
        "R": does("reconcile", lambda world: transitions.release_unlisted(world.sessions["B"], world.ids, 0.0)),
    },
    check=_fenced,
    faulty=A,
)


def _attempts_in_order(connection: Connection, world: JobWorld) -> None:
    numbers = [job.attempt for jobs in world.claimed.values() for job in jobs]
    assert sorted(numbers) == list(range(1, len(numbers) + 1)), f"attempts {numbers}"
    assert set(nothing_lost(connection, world).values()) == {"succeeded"}


RETRY_AND_CLAIM = Scenario(
    name="retry_and_claim",
    capability="jobs",
    set_up=running,
    programs={
        "A": settles("A", decided(Snooze(0.0))),
        "P": does("promote", lambda _world: transitions.promote()),
        "B": both(claims("B"), settles("B")),
    },
    check=_attempts_in_order,
    faulty=frozenset("AB"),
)


def _requeued_once(connection: Connection, world: JobWorld) -> None:
    given = Counter(job for note in ("one", "two") for job in world.notes.get(note, []))
    runs = Counter(job.id for job in world.claimed.get("A", []))
    twice = [job for job, count in given.items() if count > 1 + runs[job]]
    assert not twice, f"requeued twice without a run in between: {twice}"
    assert set(nothing_lost(connection, world).values()) == {"succeeded"}


def _requeue(world: JobWorld) -> Operation[list[int]]:
    return transitions.requeue(world.ids)


TWO_REQUEUES = Scenario(
    name="two_requeues",
    capability="jobs",
    set_up=partial(finished, jobs=2),
    programs={"A": does("one", _requeue), "B": does("two", _requeue), "C": both(claims("A"), settles("A"))},
    check=_requeued_once,
    faulty=A,
)


def _deleted_or_requeued(connection: Connection, world: JobWorld) -> None:
    gone = set(world.notes.get("delete", [])) | set(world.notes.get("delete again", []))
    if "delete" in world.lost:
        # The first reply was lost: what is missing was deleted then.
        gone |= set(world.ids) - states(connection).keys()
    nothing_lost(connection, world, gone)


REQUEUE_AND_DELETE = Scenario(
    name="requeue_and_delete",
    capability="jobs",
    set_up=partial(finished, jobs=2),
    programs={
        "A": does("requeue", _requeue),
        "B": does("delete", lambda world: transitions.delete(world.ids)),
        "C": both(claims("A"), settles("A")),
    },
    check=_deleted_or_requeued,
    faulty=frozenset("B"),
)

DELETE_AND_CLAIM = Scenario(
    name="delete_and_claim",
    capability="jobs",
    set_up=partial(ready, jobs=2),
    programs={"A": both(claims("A"), settles("A")), "B": does("delete", lambda world: transitions.delete(world.ids))},
    check=_deleted_or_requeued,
    faulty=frozenset("AB"),
)


def _due(connection: Connection) -> JobWorld:
    """Return a world of jobs that were scheduled and have just become due."""
    world = ready(connection, 2, delay=60.0)
    connection.execute("update sereno.jobs set run_at = sereno.now() - interval '1 ms'")
    return world


_promotes = does("promote", lambda _world: transitions.promote())

PROMOTE_AND_CANCEL = Scenario(
    name="promote_and_cancel",
    capability="jobs",
    set_up=_due,
    programs={"P": _promotes, "B": does("cancel", _cancel), "A": both(claims("A"), settles("A"))},
    check=_cancelled_or_done,
    faulty=frozenset("PB"),
)


TWO_PROMOTIONS = Scenario(
    name="two_promotions",
    capability="jobs",
    set_up=_due,
    programs={"P": _promotes, "Q": _promotes, "A": both(claims("A"), settles("A"))},
    check=_every_job_ends,
    faulty=frozenset("PA"),
)


def _pauses(world: JobWorld) -> Program:
    yield Run(pauses.pause("queue", "default", actor="me"), atomic=True)
    world.notes["paused"] = True


def _claims_before_or_after(world: JobWorld) -> Program:
    was_paused = world.notes.get("paused", False)
    got = yield Run(transitions.claim(world.sessions["A"], ("work",), [wanted(2)]))
    assert not (was_paused and got.jobs), "a paused queue gave jobs"
    world.claimed["A"] = got.jobs
    yield from settles("A")(world)


def _paused(connection: Connection, world: JobWorld) -> None:
    connection.execute("delete from sereno.pauses")
    _fenced(connection, world)


PAUSE_AND_CLAIM = Scenario(
    name="pause_and_claim",
    capability="jobs",
    set_up=partial(ready, jobs=2),
    programs={"A": _claims_before_or_after, "B": _pauses, "C": both(claims("B"), settles("B"))},
    check=_paused,
    faulty=frozenset("B"),
)


def _keeps_a_step(world: JobWorld) -> Program:
    (job,) = world.claimed["A"]
    owner, is_taken = world.sessions["A"], bool(world.claimed.get("B"))
    try:
        yield Run(settlement.keep_step(owner, job.id, job.attempt, "charge", b"1"))
    except LeaseLost:
        return
    assert not is_taken, "an attempt stored a step after another worker had claimed the job"
    yield from settles("A", side_rows=True)(world)


def _step_is_fenced(connection: Connection, world: JobWorld) -> None:
    _fenced(connection, world)
    left = connection.execute("select count(*) from sereno.steps").fetchone()
    assert left == (0,), "the steps of a finished job are left"


STEP_AND_EXPIRY = Scenario(
    name="step_and_expiry",
    capability="jobs",
    set_up=expired,
    programs={"A": _keeps_a_step, "R": recovers(), "B": both(claims("B"), settles("B", side_rows=True))},
    check=_step_is_fenced,
    faulty=frozenset("AB"),
)


def _enqueue_unique(_world: JobWorld) -> Operation[list[EnqueuedJob]]:
    return transitions.enqueue([new(unique_key="invoice 7")])


def _one_of_a_kind(connection: Connection, world: JobWorld) -> None:
    made = [job for note in world.notes for job in world.notes[note]]
    created = {job.id for job in made if job.created}
    world.ids = sorted({*world.ids, *states(connection)})
    assert {job.id for job in made} <= set(world.ids)
    assert len(created) <= 1, f"a unique key made jobs {created}"
    nothing_lost(connection, world)


TWO_UNIQUE_JOBS = Scenario(
    name="two_unique_jobs",
    capability="jobs",
    set_up=partial(ready, jobs=0),
    programs={"A": does("one", _enqueue_unique), "B": does("two", _enqueue_unique)},
    check=_one_of_a_kind,
    faulty=frozenset("AB"),
)

UNIQUE_JOB_AND_SETTLE = Scenario(
    name="unique_job_and_settle",
    capability="jobs",
    set_up=partial(running, unique_key="invoice 7"),
    programs={"A": settles("A"), "B": does("one", _enqueue_unique), "C": does("two", _enqueue_unique)},
    check=_one_of_a_kind,
    faulty=frozenset("AB"),
)

SCENARIOS = (
    TWO_CLAIMS,
    CLAIM_AND_CANCEL,
    SETTLE_AND_CANCEL,
    DEAD_SESSION,
    TWO_RESCUES,
    HEARTBEAT_AND_EXPIRY,
    LOST_CLAIM,
    RETRY_AND_CLAIM,
    TWO_REQUEUES,
    REQUEUE_AND_DELETE,
    DELETE_AND_CLAIM,
    PROMOTE_AND_CANCEL,
    TWO_PROMOTIONS,
    PAUSE_AND_CLAIM,
    STEP_AND_EXPIRY,
    TWO_UNIQUE_JOBS,
    UNIQUE_JOB_AND_SETTLE,
)
