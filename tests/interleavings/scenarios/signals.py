"""Signals: sent while a job is settled as waiting, times out, is cancelled or loses its session."""

from sereno.database.statement import Operation, Statement
from sereno.errors import LeaseLost
from sereno.jobs import signals, transitions
from sereno.worker.steps import AwaitSignal
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
    settles,
    states,
)
from tests.jobs.job_steps import Connection, advance, decided, do
from tests.jobs.job_steps import end as settle_all

NAME = "paid:42"
# Seconds.
TIMEOUT = 60.0


def _waits(name: str) -> JobProgram:
    """Return a worker whose handler waits for the signal: it stores the answer and succeeds, or waits."""

    def program(world: JobWorld) -> Program:
        owner = world.sessions[name]
        for job in world.claimed.get(name, []):
            try:
                got = yield Run(signals.receive(owner, job.id, job.attempt, NAME, timeout=TIMEOUT))
                if not got.values and not got.timed_out:
                    yield from settles(name, decided(_awaiting(got)), side_rows=True)(world)
                    continue
                answer = b'{"value": 7}' if got.values else b'{"timed_out": true}'
                kept = signals.keep_answer(owner, job.id, job.attempt, NAME, step=f"signal:{NAME}", result=answer)
                world.notes.setdefault("answers", []).append((yield Run(kept)))
            except LeaseLost:
                return
            yield from settles(name, side_rows=True)(world)

    return program


def _awaiting(got: signals.ReceivedSignals) -> AwaitSignal:
    waiting = AwaitSignal(until=got.until)
    waiting.signal = NAME
    return waiting


def _waiting(connection: Connection) -> JobWorld:
    """Return a world with a job that waits for the signal."""
    world = running(connection)
    owner, (job,) = world.sessions["A"], world.claimed["A"]
    got = do(connection, signals.receive(owner, job.id, job.attempt, NAME, timeout=TIMEOUT))
    with connection.transaction():
        assert settle_all(connection, owner, [job], decided(_awaiting(got))) == {job.id}
    do(connection, signals.wake_waiting())
    world.claimed.clear()
    return world


def _overdue(connection: Connection) -> JobWorld:
    """Return a world with a job whose wait has just timed out."""
    world = _waiting(connection)
    advance(connection, TIMEOUT)
    connection.execute("update sereno.sessions set lease_until = sereno.now() + interval '30 seconds'")
    return world


def _send(_world: JobWorld) -> Operation[int]:
    return (yield from signals.send(NAME, b"7"))


def _send_and_work(_world: JobWorld) -> Operation[int]:
    """Send, and keep the transaction open for another statement."""
    sent = yield from signals.send(NAME, b"7")
    yield Statement("select")
    return sent


def _sends_with_old_snapshot(world: JobWorld) -> Program:
    """Send in a transaction whose snapshot is older than what the others have written since."""

    def operation() -> Operation[int]:
        yield Statement("select count(*) from sereno.signal_waits")
        return (yield from signals.send(NAME, b"7"))

    try:
        world.notes["sent"] = yield Run(operation(), atomic=True, isolation="repeatable read")
    except ReplyLost:
        world.lost.add("sent")


_sends = does("sent", _send_and_work, atomic=True)


def _wakes(_world: JobWorld) -> Program:
    yield Run(signals.wake_waiting())


def _delivered(connection: Connection, world: JobWorld) -> None:
    """Fail if a job still waits although its signal was committed; then let everything end."""
    do(connection, signals.wake_waiting())
    is_sent = connection.execute("select from sereno.signals limit 1").fetchone() is not None
    waiting = [job for job, state in states(connection).items() if state == "scheduled"]
    assert not (is_sent and waiting), f"jobs {waiting} wait for a signal that was sent"
    for answer in world.notes.get("answers", []):
        assert is_sent or "timed_out" in answer, f"a job got {answer} without a signal"
    nothing_lost(connection, world)


SIGNAL_AND_WAIT = Scenario(
    name="signal_and_wait",
    capability="signals",
    set_up=running,
    programs={"A": _waits("A"), "S": _sends, "P": _wakes},
    check=_delivered,
    faulty=frozenset("AS"),
    never_waits=True,
)

SIGNAL_WITH_OLD_SNAPSHOT = Scenario(
    name="signal_with_old_snapshot",
    capability="signals",
    set_up=running,
    programs={"A": _waits("A"), "S": _sends_with_old_snapshot, "P": _wakes},
    check=_delivered,
    faulty=frozenset("S"),
    never_waits=True,
)

TWO_SIGNALS = Scenario(
    name="two_signals",
    capability="signals",
    set_up=_waiting,
    programs={"S": _sends, "T": does("sent too", _send), "B": both(claims("B"), _waits("B"))},
    check=_delivered,
    faulty=frozenset("S"),
    never_waits=True,
)

SIGNAL_AND_TIMEOUT = Scenario(
    name="signal_and_timeout",
    capability="signals",
    set_up=_overdue,
    programs={"S": _sends, "R": recovers(), "B": both(claims("B"), _waits("B"))},
    check=_delivered,
    faulty=frozenset("S"),
    never_waits=True,
)


def _cancel(world: JobWorld) -> Operation[tuple[list[int], list[int]]]:
    return transitions.cancel(world.ids, "no longer needed")


def _no_waits_left(connection: Connection, world: JobWorld) -> None:
    final = nothing_lost(connection, world)
    assert set(final.values()) <= {"cancelled", "succeeded"}, final
    assert connection.execute("select from sereno.signal_waits").fetchone() is None, "a finished job left its wait"


SIGNAL_AND_CANCEL = Scenario(
    name="signal_and_cancel",
    capability="signals",
    set_up=_waiting,
    programs={"S": _sends, "C": does("cancel", _cancel), "B": both(claims("B"), _waits("B"))},
    check=_no_waits_left,
    faulty=frozenset("SB"),
)

WAIT_AND_EXPIRY = Scenario(
    name="wait_and_expiry",
    capability="signals",
    set_up=expired,
    programs={"A": _waits("A"), "S": does("sent", _send), "B": both(recovers(), claims("B"), _waits("B"))},
    check=_delivered,
    faulty=frozenset("A"),
)


def _failed_since(connection: Connection) -> JobWorld:
    """Return a world with a job that waited, was woken, failed, and is scheduled for its retry."""
    world = _waiting(connection)
    do(connection, signals.send("another", b"1"))
    connection.execute(
        "update sereno.jobs set state = 'scheduled', attempt = attempt + 1, run_at = sereno.now() + interval '1 hour'"
    )
    world.notes["run_at"] = connection.execute("select run_at from sereno.jobs").fetchone()
    return world


def _not_early(connection: Connection, world: JobWorld) -> None:
    found = connection.execute("select run_at from sereno.jobs where state = 'scheduled'").fetchone()
    assert found == world.notes["run_at"], "a signal has shortened the delay of a retry"


SIGNAL_AND_RETRY = Scenario(
    name="signal_and_retry",
    capability="signals",
    set_up=_failed_since,
    programs={"S": _sends, "P": _wakes, "Q": _wakes},
    check=_not_early,
    faulty=frozenset("S"),
    never_waits=True,
)

SCENARIOS = [
    SIGNAL_AND_WAIT,
    SIGNAL_WITH_OLD_SNAPSHOT,
    TWO_SIGNALS,
    SIGNAL_AND_TIMEOUT,
    SIGNAL_AND_CANCEL,
    WAIT_AND_EXPIRY,
    SIGNAL_AND_RETRY,
]
