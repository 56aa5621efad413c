"""What a worker knows of limiters that it wrote itself: which of the jobs that they let in have ended.

Whoever else writes a limiter gives it another version, and what was known of it is forgotten. So nobody has to ask the
database who still runs, as long as a key stays with one worker.
"""

from collections.abc import Mapping, Sequence

from sereno.jobs.limits.lane_claim import KnownLimiter, LaneClaim

# With more limiters than this, all is forgotten.
MOST = 2000


class KnownLimiters:
    """By limiter: the version that we wrote, and jobs of ours that ended for good since."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
        self._ended: dict[int, set[int]] = {}

    def ended(self, job: int, limiters: Sequence[int]) -> None:
        """Its success is written: it is no longer there."""
        for limiter in limiters:
            self._ended.setdefault(limiter, set()).add(job)

    def known(self) -> dict[int, KnownLimiter]:
        """For the next claim."""
        return {
            limiter: KnownLimiter(self._versions[limiter], frozenset(jobs))
            for limiter, jobs in self._ended.items()
            if limiter in self._versions
        }

    def learn(self, known: Mapping[int, KnownLimiter], got: LaneClaim) -> None:
        """What a claim that was given `known` has written and seen."""
        if len(self._versions) + len(self._ended) > MOST:
            self._versions.clear()
            self._ended.clear()
        for limiter in got.foreign:
            self._versions.pop(limiter, None)
            self._ended.pop(limiter, None)
        for limiter in got.versions.keys() & known.keys() & self._ended.keys():
            self._ended[limiter] -= known[limiter].ended
        for job, limiters in got.holding.items():
            for limiter in limiters:
                if limiter in self._ended:
                    # It was sent back and runs again.
                    self._ended[limiter].discard(job)
        self._versions.update(got.versions)
