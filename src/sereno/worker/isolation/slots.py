"""Limits isolated processes: `isolated_processes` at once, and suspects in at most half of the slots of a queue."""

from collections import Counter
from collections.abc import Collection, Mapping

from sereno.jobs.attempt import CRASH_LIMIT
from sereno.jobs.job import ClaimedJob
from sereno.jobs.limits.lane_claim import FreeProcesses


class IsolationSlots:
    """The isolated calls of one worker process, at most `most`.

    A suspect whose next crash would be its last runs with no other suspect beside it: if the whole worker dies, no
    other suspect is charged for a crash that this one may have caused.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: dict[int, ClaimedJob] = {}

    @property
    def free(self) -> int:
        return self._most - len(self._running)

    def admits(self, job: ClaimedJob, slots: int) -> bool:
        """Return whether the job may start now; `slots`: those of its queue."""
        if self.free <= 0:
            return False
        if not job.crashes:
            return True
        suspects = [other for other in self._running.values() if other.crashes]
        if suspects and (_is_before_last_crash(job) or any(map(_is_before_last_crash, suspects))):
            return False
        return sum(other.queue == job.queue for other in suspects) < max(1, slots // 2)

    def free_for(self, isolated: Collection[str], queues: Mapping[str, int]) -> FreeProcesses:
        """Return the free processes for the next claim; `isolated`: isolated tasks, `queues`: slots by queue."""
        suspects = [other for other in self._running.values() if other.crashes]
        if any(map(_is_before_last_crash, suspects)):
            return FreeProcesses(isolated, max(0, self.free), dict.fromkeys(queues, 0))
        running = Counter(other.queue for other in suspects)
        most = {queue: max(1, slots // 2) - running[queue] for queue, slots in queues.items()}
        return FreeProcesses(isolated, max(0, self.free), most, CRASH_LIMIT - (2 if suspects else 1))

    def begin(self, job: ClaimedJob) -> None:
        self._running[job.id] = job

    def end(self, job_id: int) -> bool:
        """Free the process of a job; return whether it had one."""
        return self._running.pop(job_id, None) is not None


def _is_before_last_crash(job: ClaimedJob) -> bool:
    return job.crashes + 1 >= CRASH_LIMIT
