"""The lane decision: it never exceeds a limit, serves lanes in turn, and forgets no waiting lane."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.jobs.job import PRIORITIES
from sereno.jobs.limits.lane_decision import (
    FAIR_BAND,
    LONGEST_CHECK_INTERVAL,
    MOST_PER_SLOT,
    SHORTEST_CHECK_INTERVAL,
    Lane,
    LaneDecision,
    Limiter,
    LimiterKind,
    LockedLanes,
    QueueCapacity,
    decide,
)

BANDS = [*PRIORITIES, FAIR_BAND]


def slots(
    number: int, size: int | None, held: int = 0, kind: LimiterKind = "slots", closed: float | None = None
) -> Limiter:
    running = list(range(number * 1000, number * 1000 + held))
    return Limiter(number, kind, size, None, None, None, closed, running, 0)


def rate(
    number: int, tokens: float, burst: float = 10.0, closed: float | None = None, per_second: float = 1.0
) -> Limiter:
    return Limiter(number, "rate", None, per_second, burst, tokens, closed, [], 0)


def lane(number: int, *limiters: int, queue: str = "q", **options: Any) -> Lane:
    units = options.pop("units", [1] * len(limiters))
    return Lane(number, queue, list(limiters), units, turn=options.pop("turn", float(number)), **options)


def taken(lanes: list[Lane], limiters: list[Limiter], **options: Any) -> LockedLanes:
    whole: dict[str, Any] = {
        "free": [],
        "own": {},
        "missed": [],
        "elsewhere": [],
        "lacks_limiters": False,
        "next_check": None,
    } | options
    return LockedLanes(moment="now", now=0, lanes=lanes, limiters=limiters, **whole)


def decided(
    lanes: list[Lane],
    limiters: list[Limiter],
    free_slots: int = 100,
    now: int | None = None,
    bands: list[int] = BANDS,
    **options: Any,
) -> LaneDecision:
    return decide(
        taken(lanes, limiters, **options),
        {"q": QueueCapacity(free_slots if now is None else now, free_slots, free_slots)},
        bands,
    )


def counts(*lanes: Lane) -> list[int]:
    return [each.count for each in lanes]


# One limiter.


def test_slots_count_running_and_starting_jobs(subtests: pytest.Subtests) -> None:
    for size, held, free in [(3, 0, 3), (3, 2, 1), (3, 3, 0), (3, 5, 0), (0, 0, 0)]:
        with subtests.test(size=size, held=held, free=free):
            only = lane(1, 7)
            decision = decided([only], [slots(7, size, held)])
            assert only.count == free
            assert only.waits == 7
            assert [limiter.id for limiter in decision.limiters] == [7]


def test_slots_are_shared_by_all_lanes_of_a_limiter() -> None:
    lanes = [lane(number, 7) for number in range(5)]
    decided(lanes, [slots(7, 7, 1)])
    assert counts(*lanes) == [2, 1, 1, 1, 1]


def test_jobs_of_one_key_share_its_slots_unless_they_must_start_at_once() -> None:
    lanes = [lane(1, 7), lane(2, 8)]
    decided(lanes, [slots(7, 1), slots(8, 2)], free_slots=10, now=4)
    assert [(each.count, each.at_once) for each in lanes] == [(4, 1), (5, 2)]


def test_jobs_do_not_share_a_slot_if_that_delays_other_lanes(subtests: pytest.Subtests) -> None:
    changes: list[tuple[str, Any]] = [("fair", "t"), ("limiters", [7, 8])]
    for name, value in changes:
        with subtests.test(name=name):
            only = lane(1, 7)
            setattr(only, name, value)
            only.units = [1] * len(only.limiters)
            only.band = FAIR_BAND if only.fair else only.band
            decided([only], [slots(7, 1), slots(8, 1)], free_slots=10, now=1)
            assert (only.count, only.at_once) == (1, 1)


def test_jobs_without_keys_share_the_slots_of_their_queue_unless_a_lane_needs_them() -> None:
    plain = {"q": ([7], True)}
    decision = decided([], [slots(7, 2)], own=plain, free_slots=40, now=2)
    assert [(each.id, each.count, each.at_once) for each in decision.lanes] == [(None, 32, 2)]
    decision = decided([lane(1, 8)], [slots(7, 2), slots(8, 1)], own=plain, free_slots=40, now=2)
    assert [(each.id, each.count, each.at_once) for each in decision.lanes] == [(1, 1, 1), (None, 1, 1)]
    capacities = {"q": QueueCapacity(2, 40, 10)}
    decision = decide(taken([], [slots(7, 2)], own=plain), capacities, BANDS, slow_lanes={"q"})
    assert [each.count for each in decision.lanes] == [2]


def test_a_lane_of_slow_jobs_gives_one_job_per_slot() -> None:
    lanes = [lane(1, 7), lane(2, 8)]
    decide(taken(lanes, [slots(7, 1), slots(8, 1)]), {"q": QueueCapacity(2, 10, 10)}, BANDS, slow_lanes={1})
    assert counts(*lanes) == [1, 9]


def test_a_closed_limiter_admits_no_job_and_has_its_opening_time(subtests: pytest.Subtests) -> None:
    for limiter in [slots(7, 5, closed=3.0), rate(7, 5.0, closed=3.0)]:
        with subtests.test(limiter=limiter):
            only = lane(1, 7)
            (written,) = decided([only], [limiter]).limiters
            assert (only.count, only.waits) == (0, 7)
            assert written.check_in(0, 0.0) == 3.0


def test_an_undeclared_limit_admits_no_job(subtests: pytest.Subtests) -> None:
    for limiter in [slots(7, None, kind="unknown"), slots(7, None)]:
        with subtests.test(limiter=limiter):
            only = lane(1, 7)
            (written,) = decided([only], [limiter]).limiters
            assert (only.count, only.waits) == (0, 7)
            assert written.check_in(0, 0.0) is not None


def test_an_order_admits_only_its_head() -> None:
    head, other = lane(2, 7, order_id=7, has_head=True), lane(1, 7, order_id=7, has_head=False)
    decided([other, head], [slots(7, 1, kind="order")])
    assert counts(other, head) == [0, 1]


def test_no_job_of_an_order_starts_while_one_runs() -> None:
    head = lane(1, 7, order_id=7, has_head=True)
    decided([head], [slots(7, 1, 1, kind="order")])
    assert (head.count, head.waits) == (0, 7)


def test_an_order_that_gave_its_head_is_checked_again(subtests: pytest.Subtests) -> None:
    for free_slots in [1, 2, 50]:
        with subtests.test(free_slots=free_slots):
            head = lane(1, 7, order_id=7, has_head=True)
            (written,) = decided([head], [slots(7, 1, kind="order")], free_slots).limiters
            assert head.count == 1
            assert written.check_in(1, 0.0) == SHORTEST_CHECK_INTERVAL
            assert written.check_in(0, 0.0) == SHORTEST_CHECK_INTERVAL, "also when the head could not be claimed"


def test_the_poll_interval_of_an_idle_limiter_grows() -> None:
    waits = []
    for checks in range(8):
        limiter = slots(7, 1, 1)
        limiter.checks = checks
        decided([lane(1, 7)], [limiter])
        waits.append(limiter.check_in(0, 0.0) or 0.0)
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (SHORTEST_CHECK_INTERVAL, LONGEST_CHECK_INTERVAL)


# Rates.


def test_tokens_are_spent_by_units(subtests: pytest.Subtests) -> None:
    for tokens, units, starts in [(5.0, 1, 5), (4.9, 1, 4), (5.0, 2, 2), (0.5, 1, 0), (10.0, 10, 1)]:
        with subtests.test(tokens=tokens, units=units, starts=starts):
            only = lane(1, 7, units=[units])
            decided([only], [rate(7, tokens)])
            assert only.count == starts


def test_a_job_that_costs_more_than_the_burst_starts_when_it_is_full() -> None:
    expensive = lane(1, 7, units=[50])
    decided([expensive], [rate(7, 10.0, burst=10.0)])
    assert expensive.count == 1
    expensive = lane(1, 7, units=[50])
    decided([expensive], [rate(7, 9.0, burst=10.0)])
    assert expensive.count == 0


def test_the_first_waiting_lane_closes_a_rate_for_later_lanes() -> None:
    expensive, cheap = lane(1, 7, units=[5]), lane(2, 7, units=[1])
    (written,) = decided([expensive, cheap], [rate(7, 4.0, per_second=0.5)]).limiters
    assert counts(expensive, cheap) == [0, 0]
    assert expensive.waits == cheap.waits == 7
    assert written.check_in(0, 0.0) == 2.0, "the time at which there are enough tokens for the first"


def test_a_job_under_a_rate_starts_at_once_or_is_not_claimed() -> None:
    rated, other = lane(1, 7), lane(2, 8)
    decision = decided([rated, other], [rate(7, 10.0), slots(8, 10)], free_slots=6, now=1)
    assert rated.count == 1
    assert other.count >= 4
    assert (rated.is_rated, other.is_rated) == (True, False)
    assert "q" in decision.more


# Turns.


def fair(number: int, turn: float, weight: float | None = None, *limiters: int, **options: Any) -> Lane:
    return lane(number, *limiters, turn=turn, band=FAIR_BAND, fair=str(number), weight=weight, **options)


def test_the_lane_with_the_least_service_is_next() -> None:
    behind, ahead = fair(1, 0.0), fair(2, 3.0)
    decided([ahead, behind], [], free_slots=5)
    assert counts(behind, ahead) == [4, 1]


def test_a_heavier_key_gets_more_jobs() -> None:
    heavy, light = fair(1, 0.0, 3.0), fair(2, 0.0)
    decided([heavy, light], [], free_slots=8)
    assert counts(heavy, light) == [6, 2]


def test_a_lane_that_waited_for_a_limiter_gets_no_extra_jobs() -> None:
    waited, other = fair(1, 0.0, None, 7, behind=7), fair(2, 100.0)
    decided([waited, other], [slots(7, 10)], free_slots=4, free=[(7, True)])
    assert counts(waited, other) == [2, 2]


def test_lanes_without_a_fair_key_take_turns_one_by_one() -> None:
    lanes = [lane(number) for number in (3, 1, 2)]
    decided(lanes, [], free_slots=5)
    assert [each.count for each in sorted(lanes, key=lambda each: each.turn)] == [2, 2, 1]


def test_bands_are_served_in_the_given_order(subtests: pytest.Subtests) -> None:
    for bands, first in [(BANDS, 0), ([FAIR_BAND, *reversed(PRIORITIES)], FAIR_BAND)]:
        with subtests.test(first=first):
            lanes = [lane(1, band=0), lane(2, band=9), fair(3, 0.0)]
            decided(lanes, [], free_slots=3, bands=bands)
            assert [each.band for each in lanes if each.count] == [first]


# Queues, and lanes that could not be read.


def test_the_limiters_of_a_queue_apply_to_all_its_jobs() -> None:
    keyed = lane(1, 7)
    decision = decided([keyed], [slots(7, 10), slots(9, 4)], own={"q": ([9], True)})
    plain = next(each for each in decision.lanes if each.id is None)
    assert keyed.count + plain.count == 4
    assert keyed.limiters == [7, 9]


def test_no_slot_is_reserved_for_missing_plain_jobs() -> None:
    only = lane(1, 7, band=9)
    decision = decided([only], [slots(7, 10), slots(9, 1)], own={"q": ([9], False)})
    assert only.count == 1
    assert [each.id for each in decision.lanes] == [1]


def test_a_limiter_locked_by_another_claim_is_missed() -> None:
    blocked, open_lane = lane(1, 7, 8, behind=8), lane(2, 8)
    decision = decided([blocked, open_lane], [slots(8, 5)], free=[(8, True)])
    assert decision.is_contended
    assert decision.missed == {8}
    assert blocked not in decision.lanes
    assert open_lane.count > 0


def test_a_free_limiter_is_missed_when_the_queue_has_no_free_slot() -> None:
    waits = lane(1, 7, behind=7)
    decision = decided([waits], [slots(7, 5)], free_slots=0, free=[(7, False)])
    assert decision.missed == {7}
    assert decision.lanes == []


def test_a_due_limiter_without_waiting_lanes_is_written() -> None:
    decision = decided([], [slots(7, 5), slots(8, 5)], free=[(7, True), (8, False)])
    assert [(limiter.id, limiter.check_in(0, 0.0)) for limiter in decision.limiters] == [(7, None)]


# Properties that always hold.

some_limiters = st.tuples(
    st.sampled_from(["slots", "slots", "rate", "rate", "order", "unknown"]),
    st.integers(0, 5),
    st.integers(0, 4),
    st.floats(0, 12),
    st.integers(1, 10),
    st.sampled_from([None, None, None, 0.0, 5.0]),
)


@st.composite
def inputs(draw: st.DrawFn) -> tuple[LockedLanes, dict[str, QueueCapacity]]:
    limiters = []
    for number, (kind, size, held, tokens, burst, closed) in enumerate(draw(st.lists(some_limiters, max_size=6))):
        match kind:
            case "rate":
                limiters.append(rate(number, min(tokens, burst), burst, closed))
            case "order":
                limiters.append(slots(number, 1, min(held, 1), "order"))
            case "unknown":
                limiters.append(slots(number, None, 0, "unknown"))
            case _:
                limiters.append(slots(number, size, held, closed=closed))
    orders = [limiter.id for limiter in limiters if limiter.kind == "order"]
    others = [limiter.id for limiter in limiters if limiter.kind != "order"]
    has_head: set[int] = set()
    lanes = []
    for number in range(draw(st.integers(0, 7))):
        passed = draw(st.lists(st.sampled_from([*others, 99]), unique=True, max_size=3)) if others else []
        order = draw(st.sampled_from([None, *orders]))
        heads = order is not None and order not in has_head and draw(st.booleans())
        if order is not None:
            passed.append(order)
            has_head |= {order} if heads else set()
        made = lane(
            number,
            *passed,
            queue=draw(st.sampled_from("qr")),
            units=[draw(st.integers(1, 12)) if limiter in others else 1 for limiter in passed],
            order_id=order,
            has_head=heads if order is not None else None,
            behind=draw(st.sampled_from([None, *passed])),
            band=draw(st.sampled_from(PRIORITIES)),
            turn=draw(st.floats(0, 5)),
        )
        if draw(st.booleans()):
            made.fair, made.band, made.weight = str(number), FAIR_BAND, draw(st.sampled_from([None, 0.5, 4.0]))
        lanes.append(made)
    whole = draw(st.lists(st.sampled_from(others), unique=True, max_size=2)) if others else []
    own = {"r": (whole, draw(st.booleans()))} if whole else {}
    capacities = {queue: draw(st.tuples(st.integers(0, 9), st.integers(0, 9))) for queue in "qr"}
    free = [(limiter.id, draw(st.booleans())) for limiter in limiters if draw(st.booleans())]
    return taken(lanes, limiters, own=own, free=free), {
        queue: QueueCapacity(min(pair), max(pair), max(pair)) for queue, pair in capacities.items()
    }


@pytest.mark.slow
@given(inputs())
def test_no_decision_exceeds_the_free_slots_and_limits(
    given_input: tuple[LockedLanes, dict[str, QueueCapacity]],
) -> None:
    before, capacities = given_input
    free_slots = {queue: (each.now, each.ahead) for queue, each in capacities.items()}
    held = {limiter.id: len(limiter.held) for limiter in before.limiters}
    decision = decide(before, capacities, BANDS)
    entered: Counter[int] = Counter()
    spent: Counter[int] = Counter()
    limiters = {limiter.id: limiter for limiter in before.limiters}
    for each in decision.lanes:
        assert set(each.limiters) <= limiters.keys()
        if each.count and each.order_id is not None:
            assert (each.count, each.has_head) == (1, True)
        if each.count > each.at_once:
            assert len(each.limiters) == 1, "jobs that share a slot have one limiter"
            assert not each.is_rated
            assert each.fair is None
            assert 0 < each.at_once <= each.count <= each.at_once * MOST_PER_SLOT
        for number, units in zip(each.limiters, each.units, strict=True):
            entered[number] += each.at_once
            spent[number] += each.count * min(units, int(limiters[number].burst or units))
    for limiter in before.limiters:
        if limiter.closed or limiter.kind == "unknown":
            assert entered[limiter.id] == 0
        elif limiter.kind == "rate":
            # A job that costs more than a burst counts as one here; it leaves a debt.
            assert spent[limiter.id] <= (limiter.tokens or 0.0) + 1e-9
        elif entered[limiter.id]:
            assert held[limiter.id] + entered[limiter.id] <= (limiter.slots or 0)
    for queue, (now, ahead) in free_slots.items():
        of_queue = [each for each in decision.lanes if each.queue == queue]
        assert sum(counts(*of_queue)) <= ahead
        assert sum(each.count - each.at_once for each in of_queue) <= ahead - now
        assert sum(each.count for each in of_queue if each.is_rated) <= now


@pytest.mark.slow
@given(inputs())
def test_no_waiting_lane_is_forgotten(given_input: tuple[LockedLanes, dict[str, QueueCapacity]]) -> None:
    before, capacities = given_input
    decision = decide(before, capacities, BANDS)
    written = {limiter.id: limiter for limiter in decision.limiters}
    for each in decision.lanes:
        if each.waits is not None:
            seconds = written[each.waits].check_in(0, 0.0)
            assert seconds is not None
            assert seconds >= 0
        for limiter in each.limiters:
            assert limiter in written or not each.count
    for each in before.lanes:
        is_decided = bool(each.count) or each.waits is not None
        if each.behind is not None and not is_decided:
            assert each.behind in decision.missed
        if not is_decided and each.behind is None:
            assert decision.is_contended or each.queue in decision.more


@pytest.mark.slow
@given(inputs())
def test_an_unblocked_lane_gets_a_job(given_input: tuple[LockedLanes, dict[str, QueueCapacity]]) -> None:
    before, capacities = given_input
    alone = lane(77, queue="q", band=0, turn=-1.0)
    before.lanes.append(alone)
    ahead = capacities["q"].ahead
    decide(before, capacities, BANDS)
    assert bool(alone.count) == (ahead > 0)
