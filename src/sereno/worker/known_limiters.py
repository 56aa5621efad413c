"""Limiters that this worker wrote last, and which of the jobs that they admitted have ended since.

Another worker that writes a limiter changes its version, and then the entry here is dropped. So as long as a key stays
with one worker, that worker need not query the database for the jobs that still run.
"""

from collections.abc import Mapping, Sequence

from sereno.jobs.limits.lane_claim import KnownLimiter, LaneClaim

# Entries above which the whole memory is cleared.
MOST = 2000


class KnownLimiters:
    """By limiter: the version that we wrote, and our jobs that have ended for good since."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
        self._ended: dict[int, set[int]] = {}

    def ended(self, job: int, limiters: Sequence[int]) -> None:
        """Note that a job succeeded and its row is gone."""
        for limiter in limiters:
            self._ended.setdefault(limiter, set()).add(job)

    def known(self) -> dict[int, KnownLimiter]:
        """Return what the next claim may rely on."""
        return {
            limiter: KnownLimiter(self._versions[limiter], frozenset(jobs))
            for limiter, jobs in self._ended.items()
            if limiter in self._versions
        }

    def learn(self, known: Mapping[int, KnownLimiter], got: LaneClaim) -> None:
        """Update the memory after a claim that was given `known`."""
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
                    # The job was requeued and runs again.
                    self._ended[limiter].discard(job)
        self._versions.update(got.versions)
