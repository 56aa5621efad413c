"""Decides whether a worker waits for NOTIFY or polls for new jobs.

NOTIFY is the fastest way to a single job. But it takes a database-wide lock from before the flush of a commit until
after it, so enqueues that all notify commit one after the other: 16 clients reach about 40 % of the rate that they have
without NOTIFY. A worker that is notified often therefore removes the idle mark of its session for a while, so that
enqueues do not notify it, and polls every few milliseconds for as long as many jobs arrive.
"""

from collections import deque

# The worker starts polling when this many notifications arrive within this many seconds.
OFTEN, WITHIN = 8, 0.04
# Seconds between two polls: after one that found jobs, and at most.
SHORTEST_REST, LONGEST_REST = 0.003, 0.01
# Seconds of a polling period; it is extended if MANY_A_SECOND jobs a second were found. A worker that is notified often
# again within AGAIN seconds doubles its period, up to LONGEST_PERIOD: of several workers one may get all jobs, and the
# others must not cause notifications either.
PERIOD, LONGEST_PERIOD, AGAIN = 0.1, 1.6, 1.0
MANY_A_SECOND = 150


class Wakeups:
    """Switches one worker between NOTIFY and polling. Time is a parameter."""

    def __init__(self) -> None:
        self._notified: deque[float] = deque(maxlen=OFTEN)
        self._period = PERIOD
        self._period_end = 0.0
        self._jobs = 0
        self._misses = 0
        self._ended_at: float | None = None
        self.is_polling = False

    def notified(self, now: float) -> None:
        self._notified.append(now)

    def count_jobs(self, jobs: int) -> None:
        """Count the jobs that a claim got."""
        if jobs:
            self._jobs += jobs
            self._misses = 0

    def begins_polling(self, now: float) -> bool:
        """Return whether notifications were frequent enough that polling starts now."""
        if self.is_polling or len(self._notified) < OFTEN or now - self._notified[0] > WITHIN:
            return False
        again = self._ended_at is not None and now - self._ended_at < AGAIN
        self._period = min(LONGEST_PERIOD, self._period * 2) if again else PERIOD
        self._notified.clear()
        self._begin_period(now)
        self._misses = 0
        self.is_polling = True
        return True

    def rest(self, now: float) -> float | None:
        """Return the seconds until the next poll; None if polling ends because few jobs came."""
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
