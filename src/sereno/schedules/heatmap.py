"""The number of upcoming fires in cells of five minutes.

A million schedules share a few hundred rules: each rule is expanded once and weighted by its number of schedules. A
spread is distributed evenly over its window, an interval over the whole time: the rule does not tell the offset.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate

from sereno.database.clock import clock
from sereno.database.statement import Operation
from sereno.errors import InvalidSchedule
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules import queries
from sereno.schedules.rules.instants import compile_rule
from sereno.schedules.rules.when import Every, Once, When, decode, microseconds
from sereno.zones import SECOND, moment

CELL = 300 * SECOND
# Limits of the expansion: rules beyond them are left out, and their schedules are counted in `left_out`.
MOST_RULES = 100_000
MOST_INSTANTS = 2_000_000
# A rule with more instants than this has an interval of seconds.
MOST_OF_A_RULE = 200_000


@dataclass(frozen=True, slots=True)
class HeatmapCell:
    """The expected number of fires in the five minutes from `at`."""

    at: datetime
    fires: float


@dataclass(frozen=True, slots=True)
class Heatmap:
    """Expected fires between two moments; `left_out`: schedules that are not counted."""

    now: datetime
    until: datetime
    rules: int
    schedules: int
    left_out: int
    cells: list[HeatmapCell]


class HeatmapCells:
    """Counts in cells of equal length between two instants; what lies outside is cut off."""

    def __init__(self, now: int, until: int) -> None:
        self.now, self.until = now, until
        self.start = now // CELL * CELL
        self._counts = [0.0] * (-(-(until - self.start) // CELL))
        # Differences between neighbouring cells, for counts that are spread over many cells.
        self._steps = [0.0] * (len(self._counts) + 1)

    def add(self, at: int, count: float) -> None:
        """Add a count at one instant."""
        if self.now < at <= self.until:
            self._counts[min((at - self.start) // CELL, len(self._counts) - 1)] += count

    def smear(self, first: int, last: int, count: float) -> None:
        """Distribute a count evenly from one instant to another."""
        low, high = max(first, self.now), min(last, self.until)
        if low >= high:
            return
        density = count / (last - first)
        one, other = (low - self.start) // CELL, (high - 1 - self.start) // CELL
        if one == other:
            self._counts[one] += density * (high - low)
            return
        self._counts[one] += density * (self.start + (one + 1) * CELL - low)
        self._counts[other] += density * (high - self.start - other * CELL)
        self._steps[one + 1] += density * CELL
        self._steps[other] -= density * CELL

    def sums(self) -> list[HeatmapCell]:
        levels = accumulate(self._steps)
        return [
            HeatmapCell(moment(self.start + number * CELL), round(max(0.0, count + level), 3))
            for number, (count, level) in enumerate(zip(self._counts, levels, strict=False))
        ]


def heatmap(wanted: ScheduleFilter, span: float) -> Operation[Heatmap]:
    """Return the expected fires of the next `span` seconds."""
    now = yield from clock()
    until = now + round(span * SECOND)
    found = yield from queries.rules(wanted, moment(until), MOST_RULES)
    total = sum(count for _, count in found)
    if len(found) == MOST_RULES:
        total = sum((yield from queries.count(replace(wanted, states=["enabled"]))).values())
    cells = HeatmapCells(now, until)
    counted = _fill(cells, found)
    return Heatmap(moment(now), moment(cells.until), len(found), counted, max(0, total - counted), cells.sums())


def _fill(cells: HeatmapCells, rules: Iterable[tuple[str, int]]) -> int:
    """Expand the rules into the cells. Return how many schedules were counted."""
    counted, capacity = 0, MOST_INSTANTS
    for text, count in rules:
        try:
            when = decode(text)
        except InvalidSchedule:
            continue
        if _is_even(when):
            cells.smear(cells.now, cells.until, count * (cells.until - cells.now) / _interval(when))
            counted += count
            continue
        instants = _instants(cells, when, min(capacity, MOST_OF_A_RULE))
        if instants is None:
            continue
        capacity -= len(instants)
        window = _window(when)
        for at in instants:
            if window:
                cells.smear(at, at + window, count)
            else:
                cells.add(at, count)
        counted += count
    return counted


def _is_even(when: When) -> bool:
    return isinstance(when, Every) and (when.count_from != "clock" or microseconds(when.interval) <= CELL)


def _interval(when: When) -> int:
    assert isinstance(when, Every)
    return microseconds(when.interval)


def _window(when: When) -> int:
    return 0 if isinstance(when, Once) else microseconds(when.spread)


def _instants(cells: HeatmapCells, when: When, most: int) -> list[int] | None:
    """Return the instants whose window overlaps the cells; None if there are too many."""
    rule = compile_rule(when)
    found: list[int] = []
    at = rule.next(cells.now - _window(when), cells.now)
    while at is not None and at <= cells.until:
        if len(found) >= most:
            return None
        found.append(at)
        at = rule.next(at, cells.now)
    return found
