"""A claim reads a bounded part of a large index and all of a small one; look-backs read everything over time."""

import msgspec
import pytest

from sereno.jobs.job import ClaimedJob
from sereno.jobs.transitions import ReadyIndex
from sereno.worker.claiming import claim_ranges
from sereno.worker.claiming.claim_ranges import NARROWEST, SETTLED_AFTER, SMALL_INDEX, UNBOUNDED, WIDEST, ClaimRanges
from sereno.worker.claiming.floor import Floors

LARGE = SMALL_INDEX + 1
NOTHING_PAUSED: frozenset[tuple[str, str]] = frozenset()
ACME = frozenset({("tenant", "acme")})


def ranges(head: int, size: int = LARGE, floors: Floors | None = None) -> ClaimRanges:
    made = ClaimRanges(floors or Floors())
    made.see(ReadyIndex(head, size))
    return made


def steps(of: ClaimRanges, now: float = 0.0, *, back: bool = False) -> list[tuple[int, int]]:
    of.begin(now, back=back)
    return [(step["floor"], step["ceiling"]) for step in of.steps("default", [5])]


def job(ready_seq: int) -> ClaimedJob:
    return ClaimedJob(1, 1, "work", "default", 5, ready_seq, None, msgspec.Raw(b"{}"), 0.0, 0.0)


def width(read: list[tuple[int, int]], head: int) -> int:
    return sum(min(ceiling, head) - floor for floor, ceiling in read)


def test_a_small_index_is_read_completely() -> None:
    small = ranges(10**9, SMALL_INDEX, Floors({"default:5": 500}))
    assert steps(small) == [(500, UNBOUNDED)]
    assert steps(small, back=True) == [(0, 500), (500, UNBOUNDED)]


def test_a_large_index_is_read_in_bounded_ranges_that_include_new_jobs() -> None:
    head = 40_000_000
    large = ranges(head)
    seen, now = 0, 0.0
    while seen < head:
        now += 10.0
        read = steps(large, now)
        assert width(read, head) <= WIDEST
        assert read[0][0] == seen, "it continues where the last one stopped"
        assert read[-1][1] == UNBOUNDED
        assert read[-1][0] <= head
        seen = min(read[0][1], head)
        assert large.read_to_the_end("default", [5], 0.001) is (seen < head)
        large.learn(now, 0.001, ReadyIndex(head, LARGE), NOTHING_PAUSED)
    assert steps(large, now + 1) == [(head, UNBOUNDED)]


def test_look_backs_continue_until_everything_below_the_floor_is_read() -> None:
    head = 30_000_000
    large = ranges(head, floors=Floors({"default:5": head}))
    seen = 0
    for _ in range(1000):
        read = steps(large, back=True)
        assert width(read, head) <= WIDEST
        assert read[0][0] == seen
        seen = read[0][1]
        ended = large.ends_pass
        large.learn(0.0, 0.1, ReadyIndex(head, LARGE), NOTHING_PAUSED)
        if ended:
            break
    assert seen == head
    assert not large.is_first_pass
    assert steps(large, back=True)[0][0] == 0


def test_a_claim_that_timed_out_is_followed_by_the_narrowest_range() -> None:
    head = 10**9
    large = ranges(head, floors=Floors({"default:5": head}))
    for _ in range(20):
        steps(large, back=True)
        large.learn(0.0, 0.001, ReadyIndex(head, LARGE), NOTHING_PAUSED)
    wide = steps(large, back=True)[0]
    assert wide[1] - wide[0] == WIDEST
    large.failed()
    narrow = steps(large, back=True)[0]
    assert narrow == (wide[0], wide[0] + NARROWEST), "at the same place"


def test_jobs_claimed_far_above_the_floor_do_not_raise_it() -> None:
    floors = Floors({"default:5": 10})
    large = ranges(10**9, floors=floors)
    assert len(steps(large)) == 2
    large.claimed("default", 5, [10**9 + 5], filled=True)
    assert floors.of("default", 5) == 10
    large.claimed("default", 5, [12, 10**9 + 5], filled=True)
    assert floors.of("default", 5) == 12


def test_floors_stay_below_recent_sequence_values() -> None:
    floors = Floors()
    large = ranges(100, floors=floors)
    for now, head in ((0.0, 200), (SETTLED_AFTER / 2, 300), (SETTLED_AFTER * 1.1, 400)):
        steps(large, now)
        large.read_to_the_end("default", [5], 0.0)
        large.learn(now, 0.0, ReadyIndex(head, LARGE), NOTHING_PAUSED)
    assert floors.of("default", 5) == 200


def test_while_the_index_is_small_only_a_slow_claim_raises_its_floor(subtests: pytest.Subtests) -> None:
    for cost, floor in [(claim_ranges.SLOW / 2, 0), (claim_ranges.SLOW * 2, 700)]:
        with subtests.test(cost=cost, floor=floor):
            floors = Floors()
            small = ranges(700, 0, floors)
            steps(small)
            assert not small.read_to_the_end("default", [5], cost)
            assert floors.of("default", 5) == floor


def test_floors_are_reset_when_a_pause_ends() -> None:
    floors = Floors()
    large = ranges(5000, floors=floors)
    steps(large)
    large.read_to_the_end("default", [5], 0.0)
    large.learn(0.0, 0.0, ReadyIndex(5000, LARGE), ACME)
    assert floors.of("default", 5) == 5000
    steps(large)
    large.learn(0.0, 0.0, ReadyIndex(5000, LARGE), NOTHING_PAUSED)
    assert floors.of("default", 5) == 0


def test_a_look_back_that_filled_all_slots_reads_the_same_range_again() -> None:
    large = ranges(10**7, floors=Floors({"default:5": 10**7}))
    before = steps(large, back=True)[0]
    assert large.has_old([job(before[0] + 1)])
    assert not large.has_old([job(before[1])])
    large.learn(0.0, 0.1, ReadyIndex(10**7, LARGE), NOTHING_PAUSED, again=True)
    assert steps(large, back=True)[0] == before


def test_the_first_pass_ends_while_a_backlog_is_drained() -> None:
    """Jobs at the floor or above it were not found by the look-back, so it has read all of its range."""
    small = ranges(10**9, SMALL_INDEX, Floors({"default:5": 500}))
    steps(small, back=True)
    again = small.has_old([job(500), job(501)])
    small.learn(0.0, 0.1, ReadyIndex(10**9, SMALL_INDEX), NOTHING_PAUSED, again=again)
    assert not small.is_first_pass


def test_floors_start_from_zero_after_the_sequence_went_back() -> None:
    """A standby without the last commits was promoted: it gives the last values of ready_seq out again."""
    floors = Floors({"default:0": 900})
    of = ranges(1000, size=0, floors=floors)
    of.begin(0.0, back=False)
    of.learn(0.0, 0.001, ReadyIndex(1000, 0), frozenset())
    assert floors.of("default", 0) == 900
    of.learn(1.0, 0.001, ReadyIndex(850, 0), frozenset())
    assert floors.of("default", 0) == 0
