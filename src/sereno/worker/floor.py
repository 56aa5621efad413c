"""Where a claim starts: the lowest ready_seq that may still hold work, for each (queue, priority).

One long-open transaction elsewhere in the database keeps every claimed row's old index entry alive, and a claim that
starts from zero walks over all of them. So a claim starts at the lowest value that the last one got. What can fall
below that floor is a job whose transaction took long to commit, or a claim that was rolled back; so now and then a
claim looks back from zero, as often as that costs only a small share of the time: on a healthy table all the time,
under a pinned snapshot every few seconds.
"""

from collections.abc import Iterable, Mapping

from psycopg.errors import QueryCanceled

# Looking back may take this share of the time.
SHARE = 0.05
# On a healthy table a late commit is found within this; under a pinned snapshot within LONGEST.
SHORTEST = 0.1
LONGEST = 30.0
# Pause in seconds after a look-back that exceeded its time limit.
AFTER_FAILURE = 10.0
# Share of the time for the first pass of a worker: what it finds may have waited for this worker to start.
FIRST_SHARE = 0.5


class LookBack:
    """When to look at everything again. `shortest`: seconds between two looks, however little they cost."""

    def __init__(self, shortest: float = SHORTEST) -> None:
        self._shortest = shortest
        self._next = self._extra = 0.0
        self._asked = False

    def due_in(self, now: float) -> float:
        """Seconds left; none when it is time."""
        return 0.0 if self._asked else max(0.0, self._next - now)

    def begins(self, now: float) -> bool:
        """Whether the look that begins now is at everything."""
        due = self.due_in(now) == 0
        if due:
            self._asked = False
        return due

    def ask(self) -> None:
        """The next look that begins is at everything, whatever that costs: somebody has set the clock."""
        self._asked = True

    def done(self, now: float, cost: float, ordinary_cost: float, share: float = SHARE) -> None:
        """The dearer it was compared with an ordinary look, the later the next one.

        One that was slow by chance counts for nothing: what makes looks dear makes two of them dear.
        """
        before, self._extra = self._extra, max(0.0, cost - ordinary_cost)
        self._next = now + min(LONGEST, max(self._shortest, min(before, self._extra) / share))

    def failed(self, now: float) -> None:
        """It exceeded its time limit. Tried again at once, it would fail again, and nothing else would be done."""
        self._next = now + AFTER_FAILURE


class Ages:
    """Which ages, in seconds, a look-back over instants reads: all at once, until one such look exceeds its time.

    Then part by part, each where the last one stopped, wider or narrower by what the last ones cost.
    """

    FIRST_PART, SHORTEST_PART = 3600.0, 60.0
    CHEAP = 0.1

    def __init__(self, youngest: float, oldest: float) -> None:
        self._youngest, self._oldest = youngest, oldest
        self._from = youngest
        self._width = oldest

    @property
    def part(self) -> tuple[float, float]:
        """The older and the younger end of the next part."""
        return min(self._oldest, self._from + self._width), self._from

    def done(self, cost: float) -> None:
        end, _ = self.part
        self._from = self._youngest if end >= self._oldest else end
        if cost < self.CHEAP:
            self._width = min(self._oldest, self._width * 2)

    def failed(self) -> None:
        self._width = max(self.SHORTEST_PART, min(self.FIRST_PART, self._width / 8))


class Reach:
    """How far below its floor a look-back starts: at zero, until that exceeds its time limit; then less far."""

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
    """Whether a call ended because it took too long, as opposed to a database that is away."""
    return isinstance(error.__cause__, TimeoutError | QueryCanceled)


class Floors:
    """The floors of one worker."""

    def __init__(self, published: Mapping[str, int] | None = None) -> None:
        self._floors: dict[str, int] = dict(published or {})

    def of(self, queue: str, priority: int) -> int:
        return self._floors.get(f"{queue}:{priority}", 0)

    def claimed(self, queue: str, priority: int, got: Iterable[int], *, filled: bool) -> None:
        """Learn from a claim that got these values; `filled`: there may be more where they came from."""
        key = f"{queue}:{priority}"
        floor = self._floors.get(key, 0)
        above = [value for value in got if value >= floor]
        if above:
            # It reached the floor, so everything below is exhausted.
            self._floors[key] = min(above)
        elif filled:
            # Nothing but old work, and more of it: go on from there.
            self._floors[key] = min(got)

    def raise_to(self, queue: str, priority: int, value: int) -> None:
        """Everything below was read, and is not for this worker."""
        key = f"{queue}:{priority}"
        self._floors[key] = max(value, self._floors.get(key, 0))

    def clear(self) -> None:
        """Anything may be anywhere again."""
        self._floors.clear()

    def highest(self) -> int:
        return max(self._floors.values(), default=0)

    def published(self) -> dict[str, int]:
        """For the heartbeat: what a restarted worker may start from."""
        return dict(self._floors)
