"""What a worker knows of gates that it wrote itself: which of the jobs that they let in have ended.

Whoever else writes a gate gives it another version, and what was known of it is forgotten. So nobody has to ask the
database who still runs, as long as a key stays with one worker.
"""

from collections.abc import Mapping, Sequence

from sereno.jobs.limits.lane_claim import KnownLimiter, LaneClaim

# With more gates than this, all is forgotten.
MOST = 2000


class KnownLimiters:
    """By gate: the version that we wrote, and jobs of ours that ended for good since."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
        self._ended: dict[int, set[int]] = {}

    def ended(self, job: int, gates: Sequence[int]) -> None:
        """Its success is written: it is no longer there."""
        for gate in gates:
            self._ended.setdefault(gate, set()).add(job)

    def known(self) -> dict[int, KnownLimiter]:
        """For the next claim."""
        return {
            gate: KnownLimiter(self._versions[gate], frozenset(jobs))
            for gate, jobs in self._ended.items()
            if gate in self._versions
        }

    def learn(self, known: Mapping[int, KnownLimiter], got: LaneClaim) -> None:
        """What a claim that was given `known` has written and seen."""
        if len(self._versions) + len(self._ended) > MOST:
            self._versions.clear()
            self._ended.clear()
        for gate in got.foreign:
            self._versions.pop(gate, None)
            self._ended.pop(gate, None)
        for gate in got.versions.keys() & known.keys() & self._ended.keys():
            self._ended[gate] -= known[gate].ended
        for job, gates in got.holding.items():
            for gate in gates:
                if gate in self._ended:
                    # It was sent back and runs again.
                    self._ended[gate].discard(job)
        self._versions.update(got.versions)
