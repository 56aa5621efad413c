"""Starts claimed jobs while their queue has free slots. Jobs that need an isolated process may have to wait for one."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from sereno.jobs.attempt import CRASH_LIMIT
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import Registry, TaskDefinition
from sereno.worker.claiming.slots import QueueSlots
from sereno.worker.executor import Executor
from sereno.worker.isolation.pool import runs_alone
from sereno.worker.isolation.slots import IsolationSlots

# Seconds after which the loop of starting jobs gives way: jobs that never wait run while it starts them.
LONGEST_TURN = 0.005


class JobStarter:
    """Starts the buffered jobs of one worker. `again` is called with a queue that has more to start, a turn later."""

    def __init__(
        self, registry: Registry, executor: Executor, isolated: IsolationSlots, again: Callable[[QueueSlots], None]
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._isolated = isolated
        self._again = again
        self.is_stopped = False

    def fill(self, queue: QueueSlots) -> None:
        """Start buffered jobs while there are free slots."""
        if queue.is_filling:
            # A job that was started below has ended already; the loop starts the next one.
            return
        queue.is_filling = True
        try:
            if queue.aside:
                self._start_waiting(queue)
            self._start_buffered(queue)
        finally:
            queue.is_filling = False

    def _start_buffered(self, queue: QueueSlots) -> None:
        end = monotonic() + LONGEST_TURN
        while not self.is_stopped and (waiting := queue.next()):
            if monotonic() > end:
                asyncio.get_running_loop().call_soon(self._again, queue)
                return
            job = waiting.popleft()
            definition = self._registry.find(job.task)
            if (job.crashes or definition.isolate) and not self._admit(queue, job, definition):
                continue
            # A suspect of a batch task runs alone, outside any batch.
            jobs = _batch(waiting, definition, job) if definition.batch and not job.crashes else [job]
            queue.started(limited=job.limited)
            self._executor.start(definition, jobs)

    def _admit(self, queue: QueueSlots, job: ClaimedJob, definition: TaskDefinition) -> bool:
        """Return whether the job may start now. A job that has to wait for a process leaves the buffer meanwhile."""
        if job.crashes >= CRASH_LIMIT or not runs_alone(definition, job):
            return True
        if not self._isolated.admits(job, queue.slots):
            queue.aside.append(job)
            return False
        self._isolated.begin(job)
        return True

    def _start_waiting(self, queue: QueueSlots) -> None:
        waiting, queue.aside = queue.aside, deque()
        while waiting:
            job = waiting.popleft()
            if self.is_stopped or queue.calls >= queue.slots:
                queue.aside.append(job)
                continue
            definition = self._registry.find(job.task)
            if self._admit(queue, job, definition):
                queue.started(limited=job.limited)
                self._executor.start(definition, [job])


def _batch(waiting: deque[ClaimedJob], definition: TaskDefinition, first: ClaimedJob) -> list[ClaimedJob]:
    jobs: list[ClaimedJob] = [first]
    others: list[ClaimedJob] = []
    while waiting and len(jobs) < definition.batch:
        job = waiting.popleft()
        (jobs if job.task == definition.name and not job.crashes else others).append(job)
    waiting.extendleft(reversed(others))
    return jobs
