"""The time axis of a trace runs from 0 to 1, in order and without holes, with long idle gaps cut."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.monitoring.traces.trace import MOST_BREAK_WIDTH, MOST_BREAKS, TraceSpan, cut, place

START = datetime(2026, 11, 15, 3, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def span(kind: str, start: float, length: float) -> TraceSpan:
    return TraceSpan(kind, at(start), at(start + length), "")  # type: ignore[arg-type]  # one of the three


lengths = st.floats(0, 1e7, allow_nan=False)
spans = st.lists(st.builds(span, st.sampled_from(["wait", "run", "mark"]), lengths, lengths), max_size=60)


@pytest.mark.slow
@given(spans, st.lists(st.floats(-1e8, 1e8, allow_nan=False), max_size=10))
def test_segments_are_contiguous_and_every_time_has_a_position(found: list[TraceSpan], moments: list[float]) -> None:
    segments = cut(found)
    if not found:
        assert segments == []
        return
    assert (segments[0].low, segments[-1].high) == (0.0, 1.0)
    assert segments[0].start == min(each.start for each in found)
    assert segments[-1].end == max(each.end for each in found)
    for earlier, later in pairwise(segments):
        assert (earlier.end, earlier.high) == (later.start, later.low)
        assert {earlier.kind, later.kind} == {"time", "break"}
    assert all(each.start <= each.end and 0 <= each.low < each.high <= 1 for each in segments)
    breaks = [each for each in segments if each.kind == "break"]
    assert len(breaks) <= MOST_BREAKS
    assert sum(each.high - each.low for each in breaks) <= MOST_BREAK_WIDTH + 1e-9
    wanted = sorted([at(each) for each in moments] + [moment for each in found for moment in (each.start, each.end)])
    places = [place(segments, each) for each in wanted]
    assert places == sorted(places)
    assert all(0 <= each <= 1 for each in places)


@pytest.mark.slow
@given(spans)
def test_running_spans_are_never_cut(found: list[TraceSpan]) -> None:
    for segment in cut(found):
        if segment.kind == "break":
            assert not any(
                each.start < segment.end and each.end > segment.start for each in found if each.kind != "wait"
            )


def test_a_long_idle_gap_is_cut() -> None:
    segments = cut([span("run", 0, 1), span("run", 30_000, 1), span("run", 30_002, 1)])
    assert [each.kind for each in segments] == ["time", "break", "time"]
    assert segments[1].high - segments[1].low < 0.1
    # A gap of a second between runs of a second is as it was.
    assert place(segments, at(30_001.5)) == pytest.approx(
        (place(segments, at(30_001)) + place(segments, at(30_002))) / 2
    )


def test_a_long_wait_is_cut_between_its_ends() -> None:
    segments = cut([span("wait", 0, 86_400), span("run", 86_400, 2)])
    assert [each.kind for each in segments] == ["time", "break", "time"]
    assert place(segments, at(0)) < place(segments, at(86_400)) < place(segments, at(86_402)) == 1.0
