"""The slots of one queue in one worker, and the small buffers of jobs claimed ahead for them.

Jobs without limits wait in one buffer, jobs with limits in another. When both kinds have work, each gets half of the
slots, so that neither blocks the other. Jobs that share a slot of their key form a slot group: the next job waits
behind the ones that run.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from time import monotonic

from sereno.jobs.job import ClaimedJob
from sereno.jobs.limits.lane_decision import LaneName

# Seconds of work that are claimed ahead, estimated from the recent rate of finished jobs: short jobs come in large
# batches, long ones are left to workers that have a free slot.
AHEAD_SECONDS = 0.1
# Jobs without limits, and (below) jobs with limits, that are claimed ahead at most. A claim takes as long as its jobs
# take to run if they are very short: the worker would often wait with a smaller buffer.
MOST_AHEAD = 3000
# Jobs with a fair key are claimed ahead for this multiple of the duration of a claim. More would delay other keys,
# which have to wait for the buffered jobs; less would leave very short handlers without a next job.
FAIR_AHEAD = 2.0
MOST_LIMITED_AHEAD = 2000
# Seconds after which a job that waits in a slot group is released: the job in front of it is not a short one.
SLOT_GROUP_SECONDS = 0.5
# Seconds after which a job that waits for an isolated process is released with a delay: another worker may have one.
ASIDE_SECONDS = 30.0
# Seconds; a shorter interval is too short to estimate the rate.
SHORTEST_MEASURE = 0.01
# Jobs of a queue that one claim takes at most; the claim statement has the same number.
LARGEST_CLAIM = 1500


class SlotGroup:
    """Jobs of one lane that share slots. One for each slot is buffered or runs; the rest waits in `behind`."""

    def __init__(self, lane: LaneName, behind: Sequence[ClaimedJob], since: float) -> None:
        self.lane = lane
        self.behind = deque(behind)
        self.since = since


class QueueSlots:
    """The slots of one queue. `calls`: handlers that run now, at most `slots`; `limited_calls`: those with limits."""

    def __init__(self, name: str, slots: int, largest_batch: int = 0) -> None:
        self.name = name
        self.slots = slots
        self.calls = 0
        self.limited_calls = 0
        self.buffer: deque[ClaimedJob] = deque()
        self.limited: deque[ClaimedJob] = deque()
        # Claimed jobs that wait for an isolated process; they hold no slot.
        self.aside: deque[ClaimedJob] = deque()
        # Only for a queue with nothing but isolated tasks: how many more processes may start.
        self.free_processes: Callable[[], int] | None = None
        # Whether the claimer is starting buffered jobs now.
        self.is_filling = False
        self.more = True
        # The other half of a carried queue, which shares the slots: jobs from the carrier, and jobs from PostgreSQL.
        self.beside: QueueSlots | None = None
        # Jobs that can be claimed for the relay, beyond those for free slots.
        self.relay_room = 0
        # By the monotonic clock: until when none are, because the relay did not take the last ones.
        self.relay_rests_until = 0.0
        # Whether jobs with limits may be ready to start: then their half of the slots is reserved.
        self.more_limited = False
        self._largest_batch = largest_batch
        self._ahead = largest_batch
        self._limited_ahead = largest_batch
        self._turn = 0
        # By the id of each job of the group that is buffered or runs.
        self._slot_groups: dict[int, SlotGroup] = {}
        self._behind = 0
        self._is_fair = False
        # The last place of each fair key in the buffer.
        self._places: dict[str, int] = {}
        self._rate = 0.0
        self._limited_cost = 0.005
        self._ended = 0
        self._since = monotonic()

    def fresh(self) -> "QueueSlots":
        """Return the same queue for a new session, with nothing running or buffered."""
        return QueueSlots(self.name, self.slots, self._largest_batch)

    def free(self) -> int:
        """Return the number of jobs without limits to claim now."""
        wanted = self.slots - self.calls + self._ahead - len(self.buffer) + self.relay_room
        if self.more_limited:
            wanted -= self._reserved_for_limited()
        if self.free_processes is not None:
            wanted = min(wanted, self.free_processes())
        return max(0, min(LARGEST_CLAIM - len(self.aside), wanted))

    def limited_slots(self) -> int:
        """Return the number of jobs with limits that could start now."""
        free = self.slots - self.calls
        if self.buffer:
            free = min(free, self._limited_share() - self.limited_calls)
        return max(0, free - len(self.limited))

    def limited_slots_ahead(self) -> int:
        """Return the number of jobs with limits to claim, including those claimed ahead."""
        ahead = self._limited_ahead - len(self.limited) - self._behind
        return min(MOST_LIMITED_AHEAD, self.limited_slots() + max(0, ahead))

    def next(self) -> deque[ClaimedJob] | None:
        """Return the buffer whose first job starts next; None if no slot is free or nothing is buffered."""
        if self.calls >= self.slots or (self.beside is not None and self.calls + self.beside.calls >= self.slots):
            return None
        if self.limited and (not self.buffer or self.limited_calls < self._limited_share()):
            return self.limited
        if self.buffer and (
            not self.more_limited or self.calls - self.limited_calls < self.slots - self._limited_share()
        ):
            return self.buffer
        return None

    def add_limited(self, jobs: Sequence[ClaimedJob], first: Collection[int]) -> None:
        """Buffer jobs with limits: those in `first` in front, the others in turn by fair key.

        A fair key that is new in the buffer starts at the place of the first buffered job.
        """
        self._is_fair = any(job.fair is not None for job in jobs)
        if not self.limited:
            self._places.clear()
        front = self.limited[0].place if self.limited else 0
        for job in jobs:
            if job.id in first:
                job.place = front - 1
            elif job.fair is None:
                job.place = front
            else:
                job.place = self._places[job.fair] = max(front, self._places.get(job.fair, -1) + 1)
        self.limited = deque(sorted([*self.limited, *jobs], key=_place))

    def add_slot_group(self, lane: LaneName, slots: int, jobs: Sequence[ClaimedJob]) -> None:
        """Store the jobs of a slot group that have to wait; the first `slots` jobs are added by `add_limited`."""
        slot_group = SlotGroup(lane, jobs[slots:], jobs[0].seen)
        self._slot_groups.update(dict.fromkeys([job.id for job in jobs[:slots]], slot_group))
        self._behind += len(slot_group.behind)

    def step_up(self, job: ClaimedJob) -> None:
        """After a job of a slot group has ended, put the next job of its group at the front of the buffer."""
        slot_group = self._slot_groups.pop(job.id, None)
        if slot_group is not None and slot_group.behind:
            following = slot_group.behind.popleft()
            self._behind -= 1
            self._slot_groups[following.id] = slot_group
            following.place = self.limited[0].place if self.limited else 0
            self.limited.appendleft(following)

    @property
    def has_slot_groups(self) -> bool:
        return bool(self._slot_groups)

    @property
    def waits_behind(self) -> bool:
        """Whether any job waits behind another job of its key."""
        return self._behind > 0

    def take_slow(self) -> dict[LaneName, list[ClaimedJob]]:
        """Remove and return, by lane, the jobs that wait behind a slow job of their slot group."""
        if not self._behind:
            return {}
        end = monotonic() - SLOT_GROUP_SECONDS
        return {slot_group.lane: self._empty(slot_group) for slot_group in self._waited_for() if slot_group.since < end}

    def take_long_aside(self) -> list[ClaimedJob]:
        """Remove and return the jobs that have waited too long for an isolated process."""
        end = monotonic() - ASIDE_SECONDS
        long = [job for job in self.aside if job.seen < end]
        if long:
            self.aside = deque(job for job in self.aside if job.seen >= end)
        return long

    def waiting_since(self, moment: float) -> Iterator[int]:
        """Yield the jobs that were claimed before this moment of the monotonic clock and have not started."""
        behind = [job for slot_group in self._waited_for() for job in slot_group.behind] if self._behind else []
        for jobs in (self.buffer, self.limited, self.aside, behind):
            yield from [job.id for job in jobs if job.seen < moment]

    def take_unrelayed(self) -> list[ClaimedJob]:
        """Remove and return jobs that were claimed for the relay, which did not take them, and have no slot here."""
        return [self.buffer.pop() for _ in range(len(self.buffer) - max(self._ahead, self.slots))]

    def take_all(self) -> list[ClaimedJob]:
        """Remove and return every job that has not started."""
        behind = [job for slot_group in self._waited_for() for job in self._empty(slot_group)]
        jobs = [*self.buffer, *self.limited, *self.aside, *behind]
        self.buffer.clear()
        self.limited.clear()
        self.aside.clear()
        self._slot_groups.clear()
        return jobs

    def _waited_for(self) -> list[SlotGroup]:
        return list(
            {id(slot_group): slot_group for slot_group in self._slot_groups.values() if slot_group.behind}.values()
        )

    def _empty(self, slot_group: SlotGroup) -> list[ClaimedJob]:
        jobs = list(slot_group.behind)
        slot_group.behind.clear()
        self._behind -= len(jobs)
        return jobs

    def started(self, *, limited: bool) -> None:
        self._turn += 1
        self.calls += 1
        self.limited_calls += limited

    def ended(self, jobs: int, *, limited: bool) -> None:
        self.calls -= 1
        self.limited_calls -= limited
        self._ended += jobs

    def runs_low(self) -> bool:
        """Whether to claim again: at least half of the jobs claimed ahead have started."""
        return len(self.buffer) * 2 <= self._ahead

    def wants_more(self) -> bool:
        """Whether a claim now could get jobs that are needed."""
        if self.more and self.runs_low() and self.free() > 0:
            return True
        waiting = len(self.limited) + self._behind
        is_low = waiting * 2 <= self._limited_ahead or not self.limited
        return self.more_limited and is_low and self.limited_slots_ahead() > 0

    def learn_cost(self, seconds: float) -> None:
        """Update the average duration of a claim of jobs with limits."""
        self._limited_cost += 0.3 * (seconds - self._limited_cost)

    def measure(self) -> None:
        """Estimate from the rate since the last claim how many jobs to claim ahead."""
        now = monotonic()
        elapsed = now - self._since
        if elapsed > SHORTEST_MEASURE:
            rate = self._ended / elapsed
            self._ahead = max(self._largest_batch, min(MOST_AHEAD, int(rate * AHEAD_SECONDS)))
            self._rate += 0.5 * (rate - self._rate)
            ahead = int(self._rate * (self._limited_cost * FAIR_AHEAD if self._is_fair else AHEAD_SECONDS))
            self._limited_ahead = max(self._largest_batch, min(MOST_LIMITED_AHEAD, ahead))
            self._ended, self._since = 0, now

    def _limited_share(self) -> int:
        """Return the slots of jobs with limits while both kinds have work: half; an odd slot alternates."""
        return (self.slots + self._turn % 2) // 2

    def _reserved_for_limited(self) -> int:
        return max(0, self._limited_share() - self.limited_calls)


def _place(job: ClaimedJob) -> int:
    return job.place
