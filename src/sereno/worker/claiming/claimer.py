"""Claims ready jobs, as many as there are free slots, and starts them.

While there is work, it claims whenever its buffers run low. When the queues are empty, it marks its session idle, so
that an enqueue sends a NOTIFY, claims once more, and rests until a notification arrives or the poll is due. NOTIFY is
only a hint: polling never stops.
"""

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from time import monotonic
from typing import Any, Protocol

from sereno.database.connect import ServiceConnection
from sereno.database.statement import Operation
from sereno.jobs.job import PRIORITIES, ClaimedJob
from sereno.jobs.limits.lane_claim import FreeProcesses, LaneClaim
from sereno.jobs.task import Registry
from sereno.jobs.transitions import ClaimResult, claim, ready_index, release_unlisted
from sereno.telemetry.metrics import MetricTally
from sereno.telemetry.service import Service
from sereno.worker.claiming.claim_ranges import ClaimRanges
from sereno.worker.claiming.floor import FIRST_SHARE, SHARE, Floors, LookBack, exceeded_time
from sereno.worker.claiming.lane_claimer import LaneClaimer
from sereno.worker.claiming.slots import ASIDE_SECONDS, SLOT_GROUP_SECONDS, QueueSlots
from sereno.worker.claiming.starter import JobStarter
from sereno.worker.claiming.wakeups import Wakeups
from sereno.worker.executor import Executor
from sereno.worker.isolation.slots import IsolationSlots
from sereno.worker.sessions import set_idle
from sereno.worker.settler import Settler

# Every tenth claim reads the priorities in reverse, so that jobs of low priority do not starve.
AGEING = 10
# Seconds of backlog after which the session is no longer marked idle: it claims continuously and needs no NOTIFY.
BUSY_AFTER = 0.5
# Seconds of pause while too many outcomes wait to be written: the database is the bottleneck then.
SETTLING = 0.005


_claim_order = attrgetter("priority", "ready_seq")


class JobTaker(Protocol):
    """What may take a claimed job, so that it does not run here."""

    def takes(self, job: ClaimedJob) -> bool: ...
    def release_rest(self, queue: QueueSlots) -> None: ...


class Claimer(Service):
    """Claims jobs for one worker, buffers them by queue, and starts them in the executor."""

    def __init__(
        self,
        connection: ServiceConnection,
        upkeep: ServiceConnection,
        session: int,
        registry: Registry,
        queues: Mapping[str, QueueSlots],
        executor: Executor,
        isolated: IsolationSlots,
        settler: Settler,
        floors: Floors,
        tally: MetricTally,
        poll: float,
        *,
        listens: bool = True,
    ) -> None:
        super().__init__("claimer")
        self.isolated = isolated
        self._skips_isolated = False
        self._isolated = [task.name for task in registry if task.isolate]
        self._not_isolated = [task.name for task in registry if not task.isolate]
        for name, queue in queues.items():
            tasks = [task.isolate for task in registry if task.queue == name]
            if tasks and all(tasks):
                queue.free_processes = lambda: isolated.free
        self._connection = connection
        self._session = session
        self._registry = registry
        self._queues = queues
        self._starter = JobStarter(registry, executor, isolated, self.fill)
        self._settler = settler
        self._ranges = ClaimRanges(floors)
        self._tally = tally
        self._poll = poll
        # A worker that does not listen is never marked idle, so no enqueue notifies because of it.
        self._listens = listens
        self._idle = False
        self._is_claiming = False
        self._wakeups = Wakeups()
        self._look_back = LookBack()
        self._looked_back = False
        # Queues of which the last claim did not read the index of ready jobs to the end.
        self._unread: set[str] = set()
        self._backlog_since: float | None = None
        self._ordinary_cost = 0.005
        self._turn = 0
        self.lanes = LaneClaimer(connection, upkeep, session, registry.names, self.wake)
        # Takes jobs of carried queues and publishes them.
        self.relay: JobTaker | None = None
        # The attempts that this process has claimed and not settled, by job.
        self.held: dict[int, int] = {}
        self.reply_lost_at: float | None = None
        self.polled_at = -math.inf

    async def stop(self) -> None:
        self._starter.is_stopped = True
        await super().stop()
        await self.lanes.close()

    def notified(self) -> None:
        """Handle a NOTIFY about ready jobs."""
        self._wakeups.notified(monotonic())
        self.wake()

    async def run_once(self) -> float:
        if self._settler.is_behind:
            return SETTLING
        self._is_claiming = True
        try:
            rest = await self._claim_all()
        finally:
            self._is_claiming = False
        # A buffer may have run low while the claim was in flight. Later, `fill` wakes us when one does.
        return 0.0 if any(queue.wants_more() for queue in self._queues.values()) else rest

    async def _claim_all(self) -> float:
        """Claim for all queues, first jobs without limits; return the seconds to rest."""
        self._turn += 1
        self._release_slow()
        wanted = {name: count for name, queue in self._queues.items() if (count := queue.free()) > 0}
        if not wanted and not any(queue.limited_slots_ahead() for queue in self._queues.values()):
            await self.lanes.hand_over()
            return self._shorten(self._poll)
        # Even if only jobs with limits have free slots: this claim also reports whether there are any of them.
        got = await self._claim(wanted)
        for name, count in wanted.items():
            self._queues[name].more = got.get(name, 0) >= count or name in self._unread
        if self.lanes.conditions(self._queues):
            await self._claim_lanes()
        else:
            self._set_more_limited(dict.fromkeys(self._queues, False))
        rest = await self._rest_after(any(queue.more or queue.more_limited for queue in self._queues.values()))
        return self._shorten(rest)

    def _shorten(self, rest: float) -> float:
        """Return `rest`, cut short for due limiters and for claimed jobs that may have to be released."""
        if any(queue.waits_behind for queue in self._queues.values()):
            rest = min(rest, SLOT_GROUP_SECONDS)
        if any(queue.aside for queue in self._queues.values()):
            rest = min(rest, ASIDE_SECONDS)
        return self.lanes.shorten(rest)

    async def _claim(self, wanted: Mapping[str, int]) -> dict[str, int]:
        for queue in self._queues.values():
            queue.measure()
        if not self._ranges.is_known:
            self._ranges.see(await self._connection.run(ready_index()))
        began = monotonic()
        back = self._look_back.begins(began)
        self._ranges.begin(began, back=back)
        all_wakes = back and self._ranges.ends_pass
        wakes = 0 if all_wakes else self.lanes.wakes_from
        found = await self._run_claim(
            claim(self._session, self._tasks(), self._ranges_of(wanted), wakes, list(self._queues)), back=back
        )
        now = self.polled_at = monotonic()
        self._tally.claims += 1
        self._looked_back = back
        if back:
            share = FIRST_SHARE if self._ranges.is_first_pass else SHARE
            self._look_back.done(now, now - began, self._ordinary_cost, share)
        else:
            self._ordinary_cost += 0.2 * (now - began - self._ordinary_cost)
        self._learn(found.jobs, wanted)
        self._learn_ranges(found, wanted, now - began)
        got = self._take(found.jobs)
        await self.lanes.learn(found, back=all_wakes)
        return got

    def _learn_ranges(self, found: ClaimResult, wanted: Mapping[str, int], cost: float) -> None:
        """Raise the floors of queues that gave fewer jobs than wanted: the ranges of this claim have no more."""
        counts = Counter([job.queue for job in found.jobs])
        self._unread = {
            name
            for name, count in wanted.items()
            if counts[name] < count
            and name not in found.limited_queues
            and ("queue", name) not in found.paused
            and self._ranges.read_to_the_end(name, PRIORITIES, cost)
        }
        again = self._ranges.has_old(job for job in found.jobs if counts[job.queue] >= wanted[job.queue])
        self._ranges.learn(self.polled_at, cost, found.ready, found.paused, again=again)

    def _tasks(self) -> Collection[str]:
        """Return the tasks to claim; without isolated ones while this worker cannot start another isolated process."""
        self._skips_isolated = self.isolated.free <= 0
        return self._not_isolated if self._skips_isolated else self._registry.names

    def _free_processes(self, queues: Iterable[str]) -> FreeProcesses:
        """Return the free isolated processes for jobs with limits.

        While jobs without limits wait here for a process, now and then one job with limits may join that wait.
        """
        free = self.isolated.free_for(self._isolated, {name: self._queues[name].slots for name in queues})
        waiting = [job for queue in self._queues.values() for job in queue.aside]
        if waiting and not free.processes and self._is_turned and not any(job.limited for job in waiting):
            return free._replace(processes=1)
        return free

    async def _claim_lanes(self) -> None:
        """Claim jobs with limits. Rate-limited ones only if they can start now: the claim counts as their start."""
        capacity = {name: count for name, queue in self._queues.items() if (count := queue.limited_slots_ahead()) > 0}
        if not capacity:
            self._set_more_limited({name: self.lanes.has_work(name) for name in self._queues})
            await self.lanes.hand_over()
            return
        wanted = self._ranges_of(capacity)
        for item in wanted:
            item["now"] = self._queues[item["queue"]].limited_slots()
        began = monotonic()
        try:
            got = await self.lanes.claim(wanted, self._free_processes(capacity), turned=self._is_turned)
        except BaseException:
            self.reply_lost_at = monotonic()
            raise
        cost = monotonic() - began
        self._tally.claims += 1
        self._learn([job for job in got.jobs if job.id in got.unkeyed], capacity)
        unread = {name for name in got.short if self._ranges.read_to_the_end(name, PRIORITIES, cost)}
        for name in capacity:
            self._queues[name].learn_cost(cost)
        self._set_more_limited({name: name in self.lanes.busy or name in unread for name in capacity})
        self._take_limited(got)

    def _set_more_limited(self, more: Mapping[str, bool]) -> None:
        """Store which queues may have more jobs with limits. The slots that were reserved for them go to other jobs."""
        for name, is_more in more.items():
            queue = self._queues[name]
            was_more, queue.more_limited = queue.more_limited, is_more
            if was_more and not is_more:
                self.fill(queue)

    async def _run_claim(self, operation: Operation[ClaimResult], *, back: bool) -> ClaimResult:
        try:
            return await self._connection.run(operation)
        except BaseException as error:
            self.reply_lost_at = monotonic()
            if exceeded_time(error):
                self._ranges.failed()
                if back:
                    self._look_back.failed(monotonic())
            raise

    @property
    def _is_turned(self) -> bool:
        return self._turn % AGEING == 0

    def _ranges_of(self, wanted: Mapping[str, int]) -> list[dict[str, Any]]:
        priorities = list(reversed(PRIORITIES) if self._is_turned else PRIORITIES)
        return [
            {"queue": name, "slots": count, "floors": self._ranges.steps(name, priorities)}
            for name, count in wanted.items()
        ]

    def _take(self, jobs: list[ClaimedJob]) -> dict[str, int]:
        jobs.sort(key=_claim_order)
        now = monotonic()
        self._wakeups.count_jobs(len(jobs))
        got: dict[str, int] = {}
        for job in jobs:
            job.seen = now
            self.held[job.id] = job.attempt
            got[job.queue] = got.get(job.queue, 0) + 1
            if self.relay is None or not self.relay.takes(job):
                self._queues[job.queue].buffer.append(job)
        for queue in map(self._queues.__getitem__, got):
            self.fill(queue)
            if self.relay is not None:
                self.relay.release_rest(queue)
        return got

    def take_stored(self, job: ClaimedJob) -> None:
        """Run a job that another part of this worker has stored as running in this session."""
        job.seen = monotonic()
        self.held[job.id] = job.attempt
        self._queues[job.queue].buffer.append(job)
        self.fill(self._queues[job.queue])

    def _take_limited(self, claimed: LaneClaim) -> None:
        """Buffer and start claimed jobs with limits; rate-limited ones go first, because they have to start now."""
        claimed.jobs.sort(key=_claim_order)
        now = monotonic()
        self._wakeups.count_jobs(len(claimed.jobs))
        of_queue: dict[str, list[ClaimedJob]] = {}
        for job in claimed.jobs:
            job.seen = now
            job.limited = True
            self.held[job.id] = job.attempt
            of_queue.setdefault(job.queue, []).append(job)
        behind: set[int] = set()
        for lane, slots, jobs in claimed.slot_groups:
            self._queues[jobs[0].queue].add_slot_group(lane, slots, jobs)
            behind.update([job.id for job in jobs[slots:]])
        for queue, jobs in of_queue.items():
            first = [job for job in jobs if job.id not in behind] if behind else jobs
            self._queues[queue].add_limited(first, claimed.rated)
            self.fill(self._queues[queue])

    def _release_slow(self) -> None:
        """Release jobs that wait behind a slow job of their key: if the limit rises, another worker can run them."""
        for queue in self._queues.values():
            for lane, jobs in queue.take_slow().items():
                self.lanes.slow(lane)
                for job in jobs:
                    self._settler.release(job, "the job would have waited for another job with the same key")
            for job in queue.take_long_aside():
                delay = ASIDE_SECONDS * random.uniform(1.0, 2.0)  # noqa: S311 - jitter
                self._settler.release(job, "the job would have waited for an isolated process", delay=delay)

    def _learn(self, jobs: list[ClaimedJob], wanted: Mapping[str, int]) -> None:
        """Update the floors, where the next claim starts."""
        seen: dict[tuple[str, int], list[int]] = {}
        counts: dict[str, int] = {}
        for job in jobs:
            seen.setdefault((job.queue, job.priority), []).append(job.ready_seq)
            counts[job.queue] = counts.get(job.queue, 0) + 1
        for (queue, priority), values in seen.items():
            self._ranges.claimed(queue, priority, values, filled=counts[queue] >= wanted[queue])

    def fill(self, queue: QueueSlots) -> None:
        """Start buffered jobs while there are free slots; wake the claimer when the buffer runs low.

        Not while a claim is in flight: its end looks at the buffers again. A wake-up that was meant for this claim
        would follow it with another one for the few jobs that had started meanwhile.
        """
        self._starter.fill(queue)
        if not self._is_claiming and not self._awake.is_set() and queue.wants_more():
            self.wake()

    def settled(self, attempts: Mapping[int, int], gone: Collection[int]) -> bool:
        """Drop settled attempts by job; `gone`: jobs that are done for good. Return whether a limiter came free.

        A reply may arrive so late that the job was requeued and claimed here again: the later attempt is kept.
        """
        held = self.held
        ended = [job for job, attempt in attempts.items() if held.get(job) == attempt]
        for job in ended:
            del held[job]
        return self.lanes.settled(ended, gone)

    def isolated_ended(self) -> None:
        """Handle a freed isolated process: start a job that waits for one here, or claim one."""
        for queue in self._queues.values():
            if queue.aside:
                self.fill(queue)
        if self._skips_isolated:
            # The isolated jobs that were skipped may lie below the floor by now.
            self._look_back.ask()
            self.wake()
        elif self.lanes.conditions(self._queues):
            self.wake()

    def waiting_since(self, moment: float) -> list[int]:
        """Return the jobs that were claimed before this moment of the monotonic clock and have not started."""
        return [job for queue in self._queues.values() for job in queue.waiting_since(moment)]

    async def _rest_after(self, more: bool) -> float:
        now = monotonic()
        if more:
            self._backlog_since = self._backlog_since or now
            if self._idle and now - self._backlog_since > BUSY_AFTER:
                await self._connection.run(set_idle(self._session, False))
                self._idle = False
            return self._poll
        self._backlog_since = None
        if self._idle and self._wakeups.begins_polling(now):
            await self._connection.run(set_idle(self._session, False))
            self._idle = False
        if self._wakeups.is_polling and (pause := self._wakeups.rest(now)) is not None:
            return pause
        if not self._idle and self._listens:
            await self._connection.run(set_idle(self._session, True))
            self._idle = True
            return 0.0
        rest = self._poll * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        # The notified job may lie below the floor, if its transaction took long to commit.
        return rest if self._looked_back else min(rest, self._look_back.due_in(now) + 0.001)

    async def reconcile(self, older_than: float = 5.0) -> int:
        """Release jobs that belong to this session in the database but not in this process.

        It runs on the claim connection, so no claim is in flight meanwhile.
        """
        self.reply_lost_at = None
        return await self._connection.run(release_unlisted(self._session, self.held, older_than))
