"""The floor of a claim: the lowest ready_seq that it still scans, for each (queue, priority).

One long-open transaction elsewhere in the database retains the old index entry of every claimed row, and a claim that
starts from zero scans all of them. So a claim starts at the lowest value that the last one got. Two kinds of jobs can
fall below that floor: one whose transaction took long to commit, and one whose claim was rolled back. So some claims
scan from zero again (a look-back), limited to a small share of the time: almost every claim on a healthy table, one
every few seconds under a pinned snapshot.
"""

from collections.abc import Iterable, Mapping

from psycopg.errors import QueryCanceled

# Share of a worker's time for look-backs; more would slow down claims under a pinned snapshot.
SHARE = 0.05
# Seconds between two look-backs: SHORTEST on a healthy table, at most LONGEST under a pinned snapshot.
SHORTEST = 0.1
LONGEST = 30.0
# Pause in seconds after a look-back that exceeded its time limit.
AFTER_FAILURE = 10.0
# Share of the time for the first pass of a worker: the jobs it finds may have waited for this worker to start.
FIRST_SHARE = 0.5


class LookBack:
    """Decides when to scan everything again. `shortest`: seconds between two look-backs, however cheap they are."""

    def __init__(self, shortest: float = SHORTEST) -> None:
        self._shortest = shortest
        self._next = self._extra = 0.0
        self._requested = False

    def due_in(self, now: float) -> float:
        """Return the seconds until the next look-back, 0.0 if it is due."""
        return 0.0 if self._requested else max(0.0, self._next - now)

    def begins(self, now: float) -> bool:
        """Return whether the scan that starts now is a look-back."""
        due = self.due_in(now) == 0
        if due:
            self._requested = False
        return due

    def ask(self) -> None:
        """Make the next scan a look-back, regardless of its cost: for example after the clock was set."""
        self._requested = True

    def done(self, now: float, cost: float, ordinary_cost: float, share: float = SHARE) -> None:
        """Schedule the next look-back: the more this one cost beyond an ordinary scan, the later.

        The cheaper of the last two look-backs counts, so that a single slow one changes nothing.
        """
        before, self._extra = self._extra, max(0.0, cost - ordinary_cost)
        self._next = now + min(LONGEST, max(self._shortest, min(before, self._extra) / share))

    def failed(self, now: float) -> None:
        """Postpone after a look-back that exceeded its time limit: retried at once, it would block everything else."""
        self._next = now + AFTER_FAILURE


class AgeRanges:
    """The range of ages, in seconds, that a look-back over due times reads: all ages, until one exceeds its time limit.

    Then each look-back reads a part, from where the last one stopped, with a width adapted to the cost.
    """

    # Seconds of age: the first part after a failure, and the shortest part.
    FIRST_PART, SHORTEST_PART = 3600.0, 60.0
    # Duration of a look-back in seconds below which the next part is twice as wide.
    CHEAP = 0.1

    def __init__(self, youngest: float, oldest: float) -> None:
        self._youngest, self._oldest = youngest, oldest
        self._from = youngest
        self._width = oldest

    @property
    def part(self) -> tuple[float, float]:
        """The older and the younger end of the next part, in seconds of age."""
        return min(self._oldest, self._from + self._width), self._from

    def done(self, cost: float) -> None:
        end, _ = self.part
        self._from = self._youngest if end >= self._oldest else end
        if cost < self.CHEAP:
            self._width = min(self._oldest, self._width * 2)

    def failed(self) -> None:
        self._width = max(self.SHORTEST_PART, min(self.FIRST_PART, self._width / 8))


class ScanReach:
    """Where a look-back starts: at zero, until that exceeds its time limit; then at a distance below the floor."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._reach: int | None = None

    @property
    def is_unlimited(self) -> bool:
        return self._reach is None

    def start(self, floor: int) -> int:
        return 0 if self._reach is None else max(0, floor - self._reach)

    def done(self, floor: int) -> None:
        if self._reach is not None:
            self._reach = self._reach * 2 if self._reach < floor else None

    def failed(self) -> None:
        self._reach = self._first if self._reach is None else max(1, self._reach // 8)


def exceeded_time(error: BaseException) -> bool:
    """Return whether a call failed because it took too long, and not because the database is unreachable."""
    return isinstance(error.__cause__, TimeoutError | QueryCanceled)


class Floors:
    """The floors of one worker, by queue and priority."""

    def __init__(self, published: Mapping[str, int] | None = None) -> None:
        self._floors: dict[str, int] = dict(published or {})

    def of(self, queue: str, priority: int) -> int:
        return self._floors.get(f"{queue}:{priority}", 0)

    def claimed(self, queue: str, priority: int, values: Iterable[int], *, filled: bool) -> None:
        """Update a floor after a claim that got these values of ready_seq; `filled`: as many jobs as it wanted."""
        key = f"{queue}:{priority}"
        floor = self._floors.get(key, 0)
        above = [value for value in values if value >= floor]
        if above:
            # The claim reached the floor, so there is nothing left below the lowest value.
            self._floors[key] = min(above)
        elif filled:
            # The claim got old jobs only, and there may be more of them: continue there.
            self._floors[key] = min(values)

    def raise_to(self, queue: str, priority: int, value: int) -> None:
        """Raise the floor: everything below was read and cannot be claimed by this worker."""
        key = f"{queue}:{priority}"
        self._floors[key] = max(value, self._floors.get(key, 0))

    def clear(self) -> None:
        """Reset all floors to zero."""
        self._floors.clear()

    def highest(self) -> int:
        return max(self._floors.values(), default=0)

    def published(self) -> dict[str, int]:
        """Return the floors to publish with the heartbeat; a restarted worker starts from them."""
        return dict(self._floors)
