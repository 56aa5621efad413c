"""What outages do to a flow of jobs: lost capacity, the backlog, and the jobs that are late. Pure and seeded.

Jobs are a fluid: over days they are too many to simulate one by one. Between two changes of the capacity everything is
linear, so the results are exact for the outages that were drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random


@dataclass(frozen=True)
class Outage:
    """From `start` to `end`, in seconds, this share of the capacity is lost."""

    start: float
    end: float
    share: float = 1.0


@dataclass(frozen=True)
class CapacityStep:
    """From `at` until the next step: jobs a second."""

    at: float
    capacity: float


def draw_outages(rng: Random, mean_between: float, repair: float, horizon: float, share: float = 1.0) -> list[Outage]:
    """Return the outages of one node: a failure every `mean_between` seconds of work on average, each `repair` long."""
    found = []
    at = rng.expovariate(1 / mean_between)
    while at < horizon:
        found.append(Outage(at, min(horizon, at + repair), share))
        at += repair + rng.expovariate(1 / mean_between)
    return found


def capacity_steps(tiers: Sequence[tuple[float, Sequence[Outage]]], horizon: float) -> list[CapacityStep]:
    """Return the capacity over time: that of the slowest tier, each with its own outages."""
    changes = sorted({0.0, *(at for _, outages in tiers for each in outages for at in (each.start, each.end))})
    open_outages = [sorted(outages, key=lambda each: each.start) for _, outages in tiers]
    places = [0] * len(tiers)
    active: list[list[Outage]] = [[] for _ in tiers]
    steps: list[CapacityStep] = []
    for at in changes:
        if at >= horizon:
            break
        left = []
        for tier, (full, _) in enumerate(tiers):
            active[tier] = [each for each in active[tier] if each.end > at]
            while places[tier] < len(open_outages[tier]) and open_outages[tier][places[tier]].start <= at:
                active[tier].append(open_outages[tier][places[tier]])
                places[tier] += 1
            left.append(full * max(0.0, 1 - sum(each.share for each in active[tier])))
        steps.append(CapacityStep(at, min(left)))
    return steps


def lost_share(steps: Sequence[CapacityStep], full: float, horizon: float) -> float:
    """Return the share of the capacity that was lost, over the whole time."""
    return 1 - sum(step.capacity * seconds for step, seconds in _lasting(steps, horizon)) / (full * horizon)


def departures(steps: Sequence[CapacityStep], rate: float, horizon: float) -> list[tuple[float, float]]:
    """Return the corners of the number of finished jobs over time, if `rate` jobs arrive each second."""
    points = [(0.0, 0.0)]
    done = 0.0
    for step, seconds in _lasting(steps, horizon):
        backlog = max(0.0, rate * step.at - done)
        if backlog > 0 and step.capacity > rate and backlog / (step.capacity - rate) < seconds:
            # The backlog ends before the next step; from then on jobs leave as they arrive.
            empty = backlog / (step.capacity - rate)
            points.append((step.at + empty, done + step.capacity * empty))
            done += step.capacity * empty + rate * (seconds - empty)
        else:
            done += min(step.capacity, rate if backlog == 0 else step.capacity) * seconds
        points.append((step.at + seconds, done))
    return points


def late_jobs(points: Sequence[tuple[float, float]], rate: float, after: float) -> float:
    """Return how many jobs finish more than `after` seconds later than they arrived.

    The job that arrives at t is number rate * t. It is late if fewer have finished at t + after. Jobs of the last
    `after` seconds are not counted.
    """
    late = 0.0
    for (begin, done), (end, more) in pairwise(points):
        first, last = max(begin, after), end
        if last <= first:
            continue
        slope = (more - done) / (end - begin)
        gaps = [rate * (at - after) - (done + slope * (at - begin)) for at in (first, last)]
        late += rate * (last - first) * _positive_share(*gaps)
    return late


def _positive_share(first: float, last: float) -> float:
    """Return the share of a line from `first` to `last` that is above zero. Rounding errors do not count."""
    first, last = (0.0 if abs(gap) < 1e-6 else gap for gap in (first, last))
    if first <= 0 and last <= 0:
        return 0.0
    if first >= 0 and last >= 0:
        return 1.0
    return max(first, last) / abs(first - last)


def _lasting(steps: Sequence[CapacityStep], horizon: float) -> list[tuple[CapacityStep, float]]:
    """Return each step with its duration."""
    ends = [*(step.at for step in steps[1:]), horizon]
    return [(step, end - step.at) for step, end in zip(steps, ends, strict=True)]
