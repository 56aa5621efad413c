"""The slots of one queue in one worker, and the small buffer of jobs claimed ahead for them."""

from collections import deque
from time import monotonic

from sereno.domain.job import ClaimedJob

# Jobs for this long are claimed ahead, judged by how fast they ended lately: quick jobs come in large batches,
# slow ones are left to workers that have a slot for them.
AHEAD_SECONDS = 0.1
MOST_AHEAD = 1000
# Less time than this says nothing about the pace.
SHORTEST_MEASURE = 0.001
# One claim takes at most this many of a queue; the claim statement has the same number.
LARGEST_CLAIM = 1000


class QueueSlots:
    """`calls` handlers run at once, at most `slots`."""

    def __init__(self, name: str, slots: int, largest_batch: int = 0) -> None:
        self.name = name
        self.slots = slots
        self.calls = 0
        self.buffer: deque[ClaimedJob] = deque()
        self.more = True
        self.more_lanes = False
        self._largest_batch = largest_batch
        self._ahead = largest_batch
        self._ended = 0
        self._since = monotonic()

    def fresh(self) -> "QueueSlots":
        """The same queue for a new session: nothing runs, nothing is buffered."""
        return QueueSlots(self.name, self.slots, self._largest_batch)

    def room(self) -> int:
        """How many jobs to ask for now."""
        wanted = self.slots - self.calls + self._ahead - len(self.buffer)
        return max(0, min(LARGEST_CLAIM, wanted))

    def free(self) -> int:
        """How many jobs could start at once."""
        return max(0, self.slots - self.calls - len(self.buffer) + self._largest_batch)

    def runs_low(self) -> bool:
        """Time to claim again: half of what was claimed ahead is used up."""
        return len(self.buffer) * 2 <= self._ahead

    def wants_more(self) -> bool:
        """Whether a claim now would get something that is needed."""
        return (self.more and self.runs_low() and self.room() > 0) or (self.more_lanes and self.free() > 0)

    def ended(self, jobs: int) -> None:
        self.calls -= 1
        self._ended += jobs

    def measure(self) -> None:
        """Judge the pace since the last claim."""
        now = monotonic()
        elapsed = now - self._since
        if elapsed > SHORTEST_MEASURE:
            rate = self._ended / elapsed
            self._ahead = max(self._largest_batch, min(MOST_AHEAD, int(rate * AHEAD_SECONDS)))
            self._ended, self._since = 0, now
