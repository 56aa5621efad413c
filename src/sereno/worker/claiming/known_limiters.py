"""A cache of the limiters that this worker was the last to write, and of their jobs that have ended since.

If another worker writes a limiter, its version changes and the entry here is dropped. So while one worker alone uses a
key, it need not query the database for the jobs that still run.
"""

from collections.abc import Mapping, Sequence

from sereno.jobs.limits.lane_claim import KnownLimiter, LaneClaim

# Entries above which the whole cache is cleared.
MOST = 2000


class KnownLimiters:
    """By limiter: the version that this worker wrote, and its jobs that have succeeded since."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
        self._ended: dict[int, set[int]] = {}

    def ended(self, job: int, limiters: Sequence[int]) -> None:
        """Note that a job succeeded and its row is gone."""
        for limiter in limiters:
            self._ended.setdefault(limiter, set()).add(job)

    def known(self) -> dict[int, KnownLimiter]:
        """Return the limiters that the next claim need not query."""
        return {
            limiter: KnownLimiter(self._versions[limiter], frozenset(jobs))
            for limiter, jobs in self._ended.items()
            if limiter in self._versions
        }

    def learn(self, known: Mapping[int, KnownLimiter], claimed: LaneClaim) -> None:
        """Update the cache after a claim to which `known` was passed."""
        if len(self._versions) + len(self._ended) > MOST:
            self._versions.clear()
            self._ended.clear()
        for limiter in claimed.foreign:
            self._versions.pop(limiter, None)
            self._ended.pop(limiter, None)
        for limiter in claimed.versions.keys() & known.keys() & self._ended.keys():
            self._ended[limiter] -= known[limiter].ended
        for job, limiters in claimed.holding.items():
            for limiter in limiters:
                if limiter in self._ended:
                    # The job was requeued and runs again.
                    self._ended[limiter].discard(job)
        self._versions.update(claimed.versions)
