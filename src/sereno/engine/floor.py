"""Where a claim starts: the lowest ready_seq that may still hold work, for each (queue, priority).

One long-open transaction elsewhere in the database keeps every claimed row's old index entry alive, and a claim that
starts from zero walks over all of them. So a claim starts at the lowest value that the last one got. What can fall
below that floor is a job whose transaction took long to commit, or a claim that was rolled back; so now and then a
claim looks back from zero, as often as that costs only a small share of the time: on a healthy table all the time,
under a pinned snapshot every few seconds.
"""

from collections.abc import Iterable, Mapping

# Looking back may take this share of the time.
SHARE = 0.05
# On a healthy table a late commit is found within this; under a pinned snapshot within LONGEST.
SHORTEST = 0.1
LONGEST = 30.0


class LookBack:
    """When to look at everything again. Time comes in through the door."""

    def __init__(self) -> None:
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

    def done(self, now: float, cost: float, ordinary_cost: float) -> None:
        """The dearer it was compared with an ordinary look, the later the next one.

        One that was slow by chance counts for nothing: what makes looks dear makes two of them dear.
        """
        before, self._extra = self._extra, max(0.0, cost - ordinary_cost)
        self._next = now + min(LONGEST, max(SHORTEST, min(before, self._extra) / SHARE))


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

    def published(self) -> dict[str, int]:
        """For the heartbeat: what a restarted worker may start from."""
        return dict(self._floors)
