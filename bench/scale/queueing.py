"""A simulation of jobs that visit stations with several servers each: first come, first served. Pure and seeded."""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

# Returns a service time with this mean, in seconds.
Draw = Callable[[Random, float], float]


@dataclass(frozen=True)
class Visit:
    """A job occupies one server of the station for this long, in seconds, on average."""

    station: str
    seconds: float


def constant(_: Random, mean: float) -> float:
    return mean


def exponential(rng: Random, mean: float) -> float:
    return rng.expovariate(1 / mean)


def poisson(rng: Random, rate: float, jobs: int) -> Iterator[float]:
    """Yield the arrivals of jobs that do not know of each other, `rate` a second."""
    at = 0.0
    for _ in range(jobs):
        at += rng.expovariate(rate)
        yield at


def paced(period: float, together: int, calls: int) -> Iterator[float]:
    """Yield the arrivals of a timetable: `together` at once, every `period` seconds."""
    for number in range(calls):
        yield number // together * period


class _Station:
    def __init__(self, servers: int) -> None:
        self.free = servers
        self.waiting: deque[tuple[int, int]] = deque()


def sojourns(
    arrivals: Iterator[float],
    stations: Mapping[str, int],
    route: Sequence[Visit],
    *,
    counted: int,
    rng: Random,
    draw: Draw = constant,
) -> list[float]:
    """Return, for each job, the seconds from its arrival to the end of its first `counted` visits.

    The visits after them count for no job, but occupy the stations.
    """
    found: list[float] = []
    began: list[float] = []
    open_stations = {name: _Station(servers) for name, servers in stations.items()}
    events: list[tuple[float, int, int]] = []

    def serve(now: float, job: int, step: int) -> None:
        heapq.heappush(events, (now + draw(rng, route[step].seconds), job, step + 1))

    def arrive() -> None:
        at = next(arrivals, None)
        if at is not None:
            heapq.heappush(events, (at, len(began), 0))
            began.append(at)

    arrive()
    while events:
        now, job, step = heapq.heappop(events)
        if step == 0:
            arrive()
        else:
            left = open_stations[route[step - 1].station]
            if left.waiting:
                serve(now, *left.waiting.popleft())
            else:
                left.free += 1
        if step == counted:
            found.append(now - began[job])
        if step < len(route):
            station = open_stations[route[step].station]
            if station.free:
                station.free -= 1
                serve(now, job, step)
            else:
                station.waiting.append((job, step))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which that share of the sorted values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
