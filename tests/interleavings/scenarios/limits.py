"""Limits: lanes, slots, rates, order, changes of a limit, and sessions whose lease has expired."""

from functools import partial
from typing import Any

from sereno.jobs import transitions
from sereno.jobs.limits import lane_claim
from sereno.jobs.limits import store as limits
from sereno.jobs.limits.limit import Limit, Rate
from sereno.worker import sessions
from tests.interleavings.program import Program, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.limit_world import (
    LimitProgram,
    LimitWorld,
    all_end,
    claims_lanes,
    in_turn,
    settles_lanes,
    workers,
)
from tests.jobs.job_steps import Connection, advance, do
from tests.jobs.limits.lane_steps import Claimer, keys, limited_job, put, set_limit

KEYED = keys(("one", "a"))


def _limited(connection: Connection, jobs: int = 2, slots: int = 1, **options: Any) -> LimitWorld:
    """Return a world of jobs of one key with `slots` slots; the limiter exists, because one job has ended."""
    set_limit(connection, "one", Limit(slots))
    first = Claimer(connection)
    ended = put(connection, KEYED)
    first.wake()
    first.finish(first.claim(1).jobs)
    made = put(connection, KEYED, jobs)
    return LimitWorld([*ended, *made], workers(connection, **options), most=slots, notes={"ended": ended})


def _holding(connection: Connection) -> LimitWorld:
    """Return a world in which worker A holds the only slot, and another job of the key waits."""
    world = _limited(connection)
    worker = world.workers["A"]
    claimer = Claimer(connection)
    claimer.session = worker.session
    claimer.wake()
    result = claimer.claim(1)
    worker.claimed({}, result)
    world.enter("A", result.jobs)
    return world


def _worker(name: str) -> LimitProgram:
    return in_turn(claims_lanes(name), settles_lanes(name))


def _does(note: str, operation: Any, *, atomic: bool = False) -> LimitProgram:
    def program(world: LimitWorld) -> Program:
        world.notes[note] = yield Run(operation(world), atomic=atomic)

    return program


TWO_LANE_CLAIMS = Scenario(
    name="two_lane_claims",
    capability="limits",
    set_up=_limited,
    programs={"A": _worker("A"), "B": _worker("B")},
    check=all_end,
    faulty=frozenset("A"),
)

SHARED_SLOTS = Scenario(
    name="shared_slots",
    capability="limits",
    set_up=partial(_limited, jobs=3, slots=3, shares=True),
    programs={"A": _worker("A"), "B": _worker("B")},
    check=all_end,
    faulty=frozenset("A"),
)


def _new_key(connection: Connection) -> LimitWorld:
    """Return a world in which the limiter of the key does not exist yet."""
    set_limit(connection, "one", Limit(1))
    return LimitWorld(put(connection, KEYED, 2), workers(connection))


FIRST_CLAIMS_OF_A_KEY = Scenario(
    name="first_claims_of_a_key",
    capability="limits",
    set_up=_new_key,
    programs={"A": claims_lanes("A"), "B": claims_lanes("B")},
    check=all_end,
)


def _freed(connection: Connection) -> LimitWorld:
    """Return a world in which jobs wait for a slot that has come free, and the limiter is due."""
    set_limit(connection, "one", Limit(1))
    first = Claimer(connection)
    made = put(connection, KEYED, 3)
    first.wake()
    first.finish(first.claim().jobs)
    do(connection, lane_claim.hand_over(first.freed))
    return LimitWorld(made, workers(connection))


CLAIMS_OF_A_FREED_SLOT = Scenario(
    name="claims_of_a_freed_slot",
    capability="limits",
    set_up=_freed,
    programs={"A": claims_lanes("A"), "B": claims_lanes("B")},
    check=all_end,
    faulty=frozenset("A"),
)

SETTLE_AND_LANE_CLAIM = Scenario(
    name="settle_and_lane_claim",
    capability="limits",
    set_up=_holding,
    knows_transactions=True,
    programs={"A": settles_lanes("A"), "B": _worker("B")},
    check=all_end,
    faulty=frozenset("AB"),
)

ENQUEUE_AND_LANE_CLAIM = Scenario(
    name="enqueue_and_lane_claim",
    capability="limits",
    set_up=partial(_limited, jobs=0),
    programs={
        "A": _does("made", lambda _world: transitions.enqueue([limited_job(KEYED)]), atomic=True),
        "B": _worker("B"),
        "C": _does("opened", lambda _world: lane_claim.open_lanes(0)),
    },
    check=lambda connection, world: all_end(connection, _with_made(world)),
)


def _with_made(world: LimitWorld) -> LimitWorld:
    world.ids += [job.id for job in world.notes["made"]]
    return world


def _recovers(_world: LimitWorld) -> Program:
    yield Run(sessions.expire())
    yield Run(sessions.rescue())


def _expired(connection: Connection) -> LimitWorld:
    world = _holding(connection)
    connection.execute(
        "update sereno.sessions set lease_until = sereno.now() - interval '1 ms' where id = %s",
        [world.workers["A"].session],
    )
    # Its lease is over: what it runs no longer counts.
    world.inside.clear()
    return world


DEAD_SESSION_WITH_A_SLOT = Scenario(
    name="dead_session_with_a_slot",
    capability="limits",
    set_up=_expired,
    programs={"A": settles_lanes("A"), "R": _recovers, "B": _worker("B")},
    check=all_end,
    faulty=frozenset("A"),
)


def _lowers(world: LimitWorld) -> Program:
    yield Run(limits.change("one", "slots", Limit(1).numbers, queue=None, actor="me", note=None), atomic=True)
    # What runs already continues; no claim after this admits a second job.
    world.notes["lowered"] = True


def _claims_under_the_new_limit(name: str) -> LimitProgram:
    def program(world: LimitWorld) -> Program:
        was_lowered = world.notes.get("lowered", False)
        before = {job for jobs in world.inside.values() for job in jobs}
        yield from claims_lanes(name)(world)
        after = {job for jobs in world.inside.values() for job in jobs}
        assert not was_lowered or len(after) <= max(1, len(before)), f"{after} run after the limit was lowered"
        yield from settles_lanes(name)(world)

    return program


LOWERED_LIMIT = Scenario(
    name="lowered_limit",
    capability="limits",
    set_up=partial(_limited, jobs=3, slots=2),
    programs={"A": _claims_under_the_new_limit("A"), "B": _claims_under_the_new_limit("B"), "C": _lowers},
    check=all_end,
)

REQUEUE_AND_LANE_CLAIM = Scenario(
    name="requeue_and_lane_claim",
    capability="limits",
    set_up=_holding,
    knows_transactions=True,
    programs={
        "A": in_turn(settles_lanes("A", hands_over=False), claims_lanes("A")),
        "B": claims_lanes("B"),
        "C": _does("requeued", lambda world: transitions.requeue(world.ids)),
    },
    check=all_end,
)

CANCEL_AND_LANE_CLAIM = Scenario(
    name="cancel_and_lane_claim",
    capability="limits",
    set_up=_limited,
    programs={"A": _worker("A"), "C": _does("cancelled", lambda world: transitions.cancel(world.ids, "no"))},
    check=all_end,
    faulty=frozenset("AC"),
)


def _rated(connection: Connection) -> LimitWorld:
    """Return a world of three jobs of which one a minute may start."""
    set_limit(connection, "one", Rate(1, "1m", burst=1))
    return LimitWorld(put(connection, KEYED, 3), workers(connection), most=3)


def _one_started(connection: Connection, world: LimitWorld) -> None:
    assert len(world.runs) <= 1, f"{world.runs} started within a minute, one may"
    all_end(connection, world)


RATE_AND_TWO_CLAIMS = Scenario(
    name="rate_and_two_claims",
    capability="limits",
    set_up=_rated,
    programs={"A": _worker("A"), "B": _worker("B")},
    check=_one_started,
    faulty=frozenset("A"),
)


def _ordered(connection: Connection) -> LimitWorld:
    return LimitWorld(put(connection, keys(order="account 7"), 3), workers(connection))


def _in_order(connection: Connection, world: LimitWorld) -> None:
    started = [job for job, _ in world.runs]
    assert started == sorted(started), f"started in the order {started}"
    all_end(connection, world)


ORDER_AND_TWO_CLAIMS = Scenario(
    name="order_and_two_claims",
    capability="limits",
    set_up=_ordered,
    programs={"A": _worker("A"), "B": _worker("B")},
    check=_in_order,
    faulty=frozenset("A"),
)


def _unused(connection: Connection) -> LimitWorld:
    """Return a world in which the lane and the limiter of a key were unused for two hours, and a job arrives."""
    first = _limited(connection, jobs=0)
    advance(connection, 7200.0)
    return LimitWorld([*first.ids, *put(connection, KEYED)], workers(connection))


def _sweeps(_world: LimitWorld) -> Program:
    yield Run(limits.sweep_lanes())
    yield Run(limits.sweep_limiters())


SWEEP_AND_LANE_CLAIM = Scenario(
    name="sweep_and_lane_claim",
    capability="limits",
    set_up=_unused,
    programs={"A": _worker("A"), "B": claims_lanes("B"), "S": _sweeps},
    check=all_end,
)


def _closes(world: LimitWorld) -> Program:
    yield Run(limits.close("one", "a", 60.0))
    world.notes["closed"] = True


def _claims_nothing_when_closed(name: str) -> LimitProgram:
    def program(world: LimitWorld) -> Program:
        was_closed, before = world.notes.get("closed", False), len(world.runs)
        yield from claims_lanes(name)(world)
        assert not was_closed or len(world.runs) == before, "a job started although its limit was closed"
        yield from settles_lanes(name)(world)

    return program


CLOSE_AND_LANE_CLAIM = Scenario(
    name="close_and_lane_claim",
    capability="limits",
    set_up=_limited,
    programs={"A": _claims_nothing_when_closed("A"), "B": _claims_nothing_when_closed("B"), "C": _closes},
    check=all_end,
)

SCENARIOS = (
    TWO_LANE_CLAIMS,
    SHARED_SLOTS,
    FIRST_CLAIMS_OF_A_KEY,
    CLAIMS_OF_A_FREED_SLOT,
    SETTLE_AND_LANE_CLAIM,
    ENQUEUE_AND_LANE_CLAIM,
    DEAD_SESSION_WITH_A_SLOT,
    LOWERED_LIMIT,
    REQUEUE_AND_LANE_CLAIM,
    CANCEL_AND_LANE_CLAIM,
    RATE_AND_TWO_CLAIMS,
    ORDER_AND_TWO_CLAIMS,
    SWEEP_AND_LANE_CLAIM,
    CLOSE_AND_LANE_CLAIM,
)
