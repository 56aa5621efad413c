"""Takes ready jobs, as many as there is room for, and starts them.

Awake, it claims as often as jobs run low. When the queues are empty it marks its session idle, so that an enqueue
tells it, looks once more, and rests until it is told or the poll is due. NOTIFY is a hint: the poll is always on.
"""

import math
import random
from collections.abc import Mapping
from time import monotonic
from typing import Any

from sereno.domain.job import PRIORITIES, ClaimedJob
from sereno.domain.task import Registry, TaskDefinition
from sereno.engine.executor import Executor
from sereno.engine.floor import Floors, LookBack
from sereno.engine.service import Service
from sereno.engine.settler import Settler
from sereno.engine.slots import QueueSlots
from sereno.store.connect import Line
from sereno.store.jobs import claim, release_unlisted
from sereno.store.sessions import set_idle
from sereno.telemetry.metrics import Tally

# Every so many claims, the priorities are walked from the other end: nothing starves, and no row is rewritten.
AGEING = 10
# A backlog that lasts this long means that nobody needs to wake us.
BUSY_AFTER = 0.5
# The pause while outcomes wait to be written: the database is the slower one then.
SETTLING = 0.005


class Claimer(Service):
    """job → attempt."""

    def __init__(
        self,
        line: Line,
        session: int,
        registry: Registry,
        queues: Mapping[str, QueueSlots],
        executor: Executor,
        settler: Settler,
        floors: Floors,
        tally: Tally,
        poll: float,
    ) -> None:
        super().__init__("claimer")
        self._line = line
        self._session = session
        self._registry = registry
        self._queues = queues
        self._executor = executor
        self._settler = settler
        self._floors = floors
        self._tally = tally
        self._poll = poll
        self._idle = False
        self._look_back = LookBack()
        self._looked_back = False
        self._backlog_since: float | None = None
        self._ordinary_cost = 0.005
        self._turn = 0
        self.held: set[int] = set()
        self.reply_lost_at: float | None = None
        self.polled_at = -math.inf

    async def run_once(self) -> float:
        if self._settler.is_behind:
            return SETTLING
        asked = {name: room for name, queue in self._queues.items() if (room := queue.room()) > 0}
        if not asked:
            return self._poll
        got = await self._claim(asked)
        for name, room in asked.items():
            self._queues[name].more = got.get(name, 0) >= room
        return await self._rest_after(any(self._queues[name].more for name in asked))

    async def _claim(self, asked: Mapping[str, int]) -> dict[str, int]:
        for name in asked:
            self._queues[name].measure()
        began = monotonic()
        back = self._look_back.due_in(began) == 0
        try:
            jobs = await self._line.run(claim(self._session, self._registry.names, self._wanted(asked, back=back)))
        except BaseException:
            self.reply_lost_at = monotonic()
            raise
        now = self.polled_at = monotonic()
        self._tally.claims += 1
        self._looked_back = back
        if back:
            self._look_back.done(now, now - began, self._ordinary_cost)
        else:
            self._ordinary_cost += 0.2 * (now - began - self._ordinary_cost)
        return self._take(jobs, asked, now)

    def _wanted(self, asked: Mapping[str, int], *, back: bool) -> list[dict[str, Any]]:
        self._turn += 1
        order = reversed(PRIORITIES) if self._turn % AGEING == 0 else PRIORITIES
        priorities = list(order)
        return [
            {
                "queue": name,
                "room": room,
                "floors": [{"priority": p, "floor": 0 if back else self._floors.of(name, p)} for p in priorities],
            }
            for name, room in asked.items()
        ]

    def _take(self, jobs: list[ClaimedJob], asked: Mapping[str, int], now: float) -> dict[str, int]:
        got: dict[str, int] = {}
        seen: dict[tuple[str, int], list[int]] = {}
        jobs.sort(key=_claim_order)
        for job in jobs:
            job.seen = now
            self.held.add(job.id)
            self._queues[job.queue].buffer.append(job)
            got[job.queue] = got.get(job.queue, 0) + 1
            seen.setdefault((job.queue, job.priority), []).append(job.ready_seq)
        for (queue, priority), values in seen.items():
            self._floors.claimed(queue, priority, values, filled=got[queue] >= asked[queue])
        for queue in got:
            self.fill(self._queues[queue])
        return got

    def fill(self, queue: QueueSlots) -> None:
        """Start what is buffered, as far as there are slots; claim again in time."""
        while queue.buffer and queue.calls < queue.slots and not self.stopping:
            job = queue.buffer.popleft()
            definition = self._registry.find(job.task)
            # A suspect of a batch task runs alone, like any other suspect.
            jobs = self._batch(queue, definition, job) if definition.batch and not job.crashes else [job]
            queue.calls += 1
            self._executor.start(definition, jobs)
        if queue.more and queue.runs_low():
            self.wake()

    def _batch(self, queue: QueueSlots, definition: TaskDefinition, first: ClaimedJob) -> list[ClaimedJob]:
        jobs: list[ClaimedJob] = [first]
        others: list[ClaimedJob] = []
        while queue.buffer and len(jobs) < definition.batch:
            job = queue.buffer.popleft()
            (jobs if job.task == definition.name and not job.crashes else others).append(job)
        queue.buffer.extendleft(reversed(others))
        return jobs

    async def _rest_after(self, more: bool) -> float:
        now = monotonic()
        if more:
            self._backlog_since = self._backlog_since or now
            if self._idle and now - self._backlog_since > BUSY_AFTER:
                await self._line.run(set_idle(self._session, False))
                self._idle = False
            # Something may have run low while the claim was under way; otherwise whoever runs low wakes us.
            low = any(queue.more and queue.runs_low() and queue.room() for queue in self._queues.values())
            return 0.0 if low else self._poll
        self._backlog_since = None
        if not self._idle:
            await self._line.run(set_idle(self._session, True))
            self._idle = True
            return 0.0
        rest = self._poll * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        # What we were told of may lie below the floor: a job whose transaction took long to commit.
        return rest if self._looked_back else min(rest, self._look_back.due_in(now) + 0.001)

    async def reconcile(self, older_than: float = 5.0) -> int:
        """Give back what the database thinks we hold and we do not. On the claim's line, so no claim is under way."""
        self.reply_lost_at = None
        return await self._line.run(release_unlisted(self._session, self.held, older_than))


def _claim_order(job: ClaimedJob) -> tuple[int, int]:
    return (job.priority, job.ready_seq)
