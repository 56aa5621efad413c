"""Whether a worker wants to be told of new jobs, or polls for them.

Being told is the quickest way to one job. But NOTIFY takes a lock of the whole database from before a commit's flush
until after it, so enqueues that all notify are committed one after the other: 16 clients reach about 40 % of the rate
that they have when nobody is told. A worker that is told often therefore stops listening for a while (its session is no
longer marked idle) and polls every few milliseconds, as long as many jobs come.
"""

from collections import deque

# So many notifications within so many seconds are often.
OFTEN, WITHIN = 8, 0.04
# Seconds between two polls: after one that found something, and at most.
SHORTEST_REST, LONGEST_REST = 0.003, 0.01
# Polling lasts for this many seconds, and goes on if so many jobs a second came meanwhile. Longer, up to LONGEST, for a
# worker that was told often again within AGAIN seconds: of several workers one may get all jobs, and the others have to
# stay silent too.
PERIOD, LONGEST_PERIOD, AGAIN = 0.1, 1.6, 1.0
MANY_A_SECOND = 150


class Wakeups:
    """Told, or polling. Time is a parameter."""

    def __init__(self) -> None:
        self._told: deque[float] = deque(maxlen=OFTEN)
        self._period = PERIOD
        self._period_end = 0.0
        self._jobs = 0
        self._misses = 0
        self._ended_at: float | None = None
        self.is_polling = False

    def told(self, now: float) -> None:
        self._told.append(now)

    def found(self, jobs: int) -> None:
        """A claim got so many."""
        if jobs:
            self._jobs += jobs
            self._misses = 0

    def begins_polling(self, now: float) -> bool:
        """Whether notifications came so often that polling starts now."""
        if self.is_polling or len(self._told) < OFTEN or now - self._told[0] > WITHIN:
            return False
        again = self._ended_at is not None and now - self._ended_at < AGAIN
        self._period = min(LONGEST_PERIOD, self._period * 2) if again else PERIOD
        self._told.clear()
        self._begin_period(now)
        self._misses = 0
        self.is_polling = True
        return True

    def rest(self, now: float) -> float | None:
        """Seconds until the next poll; None when polling ends because few jobs came."""
        if now >= self._period_end:
            if self._jobs < MANY_A_SECOND * self._period:
                self.is_polling = False
                self._ended_at = now
                return None
            self._begin_period(now)
        self._misses += 1
        return min(LONGEST_REST, SHORTEST_REST * self._misses)

    def _begin_period(self, now: float) -> None:
        self._period_end = now + self._period
        self._jobs = 0
