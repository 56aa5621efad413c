"""Iterations: cursors that commit together with effects, beside expired leases, rescues and cancels."""

from functools import partial

from sereno.database.statement import Operation, Statement
from sereno.errors import LeaseLost
from sereno.jobs import transitions
from sereno.jobs.attempt import Settlement
from sereno.jobs.cursors import Cursor, keep_cursor, read_cursor
from sereno.jobs.job import ClaimedJob
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
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
    settles,
)
from tests.jobs.job_steps import Connection

# Items of the source. The effect of an item is a row of the audit log, which nothing else writes here.
ITEMS = 2
EFFECT = "insert into sereno.audit (actor, action, subject) values ('handler', 'effect', %(item)s)"
EFFECTS = "select subject from sereno.audit where action = 'effect' order by subject"


def _handle(owner: int, job: ClaimedJob, item: int) -> Operation[None]:
    """Write the effect of an item and the cursor after it, as `batch.transaction()` does."""
    yield Statement(EFFECT, {"item": str(item)})
    yield from keep_cursor(owner, job.id, job.attempt, "rows", Cursor(item + 1, item + 1))


def iterates(name: str) -> JobProgram:
    """Return a worker that handles the items of the job it holds, from the stored cursor on.

    An attempt that loses a reply fails; it does not know whether the item was committed.
    """

    def program(world: JobWorld) -> Program:
        for job in world.claimed.get(name, []):
            began = Cursor()
            try:
                if job.attempt > 1:
                    began = yield Run(read_cursor(job.id, "rows"))
                for item in range(began.cursor or 0, ITEMS):
                    yield Run(_handle(world.sessions[name], job, item), atomic=True)
            except (LeaseLost, ReplyLost):
                world.claimed[name] = []
                world.notes.setdefault("stopped", []).append(job)
                return

    return program


def _effects_once(connection: Connection, world: JobWorld) -> None:
    settled_once(world)
    found = [subject for (subject,) in connection.execute(EFFECTS).fetchall()]
    expected = [str(item) for item in range(ITEMS)]
    assert found == expected[: len(found)], f"effects are missing or were written twice: {found}"
    if any(world.settled.values()):
        assert found == expected, f"the job has succeeded with the effects {found}"
    nothing_lost(connection, world)


ITERATION_AND_EXPIRY = Scenario(
    name="iteration_and_expiry",
    capability="iterations",
    set_up=expired,
    programs={
        "A": both(iterates("A"), settles("A", side_rows=True)),
        "R": recovers(),
        "B": both(claims("B"), iterates("B"), settles("B", side_rows=True)),
    },
    check=_effects_once,
    faulty=frozenset("A"),
)


def _advances(world: JobWorld) -> Operation[None]:
    (job,) = world.claimed["A"]
    return keep_cursor(world.sessions["A"], job.id, job.attempt, "rows", Cursor(1, 1))


def _advances_once(world: JobWorld) -> Program:
    try:
        yield from does("advanced", _advances)(world)
    except LeaseLost:
        return


def _free_only_if_advanced(connection: Connection, world: JobWorld) -> None:
    """A death is free only if the attempt had advanced; the job continues where that was committed."""
    row = connection.execute("select outcome from sereno.attempts where number = 1").fetchone()
    cursors = connection.execute("select attempt, result ->> 'cursor' from sereno.steps").fetchall()
    assert cursors in ([], [(1, "1")]), f"cursors of an attempt that lost the job: {cursors}"
    if row == ("release",):
        assert cursors, "the death of a session is not charged, and its attempt had not advanced"
    nothing_lost(connection, world)


ITERATION_AND_RESCUE = Scenario(
    name="iteration_and_rescue",
    capability="iterations",
    set_up=expired,
    programs={"A": _advances_once, "R": recovers(), "B": claims("B")},
    check=_free_only_if_advanced,
    faulty=frozenset("A"),
)


def _cancel(world: JobWorld) -> Operation[tuple[list[int], list[int]]]:
    return transitions.cancel(world.ids, "no longer needed")


def _no_cursor_is_left(connection: Connection, world: JobWorld) -> None:
    nothing_lost(connection, world)
    assert connection.execute("select count(*) from sereno.steps").fetchone() == (0,), (
        "a cursor of an ended job is left"
    )


ITERATION_AND_CANCEL = Scenario(
    name="iteration_and_cancel",
    capability="iterations",
    set_up=partial(running, jobs=1),
    programs={
        "A": both(iterates("A"), settles("A", Settlement("release", reason="the worker stopped"), side_rows=True)),
        "C": does("cancel", _cancel),
        "B": both(claims("B"), iterates("B"), settles("B", side_rows=True)),
    },
    check=_no_cursor_is_left,
    faulty=frozenset("AC"),
)

SCENARIOS = [ITERATION_AND_EXPIRY, ITERATION_AND_RESCUE, ITERATION_AND_CANCEL]
