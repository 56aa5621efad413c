"""The steps of a worker that claims under limits, one by one, directly on the store."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psycopg.pq import TransactionStatus

from sereno.jobs import transitions
from sereno.jobs.job import PRIORITIES, ClaimedJob, JobOptions, NewJob
from sereno.jobs.limits import lane_claim
from sereno.jobs.limits import store as limits
from sereno.jobs.limits.lane_claim import LaneClaim
from sereno.jobs.limits.lane_decision import FAIR_BAND
from sereno.jobs.limits.limit import Limit, Rate
from sereno.worker.claiming.claimer import AGEING
from sereno.worker.claiming.known_limiters import KnownLimiters
from tests.jobs.job_steps import Connection, decided, do, end, session, wanted

# Seconds after which every limiter is due.
LONGEST_CHECK_INTERVAL = 60.0


def keys(
    *limited: Sequence[Any], fair: str | None = None, order: str | None = None, blocks: bool = False
) -> dict[str, Any]:
    """Return the keys of a job: limits as (name, key) or (name, key, units)."""
    found: dict[str, Any] = {}
    if limited:
        found["limits"] = sorted([*item, 1][:3] for item in limited)
    if fair is not None:
        found["fair"] = fair
    if order is not None:
        found["order"] = order
    if blocks:
        found["blocks"] = True
    return found


def limited_job(of: Mapping[str, Any] | None, task: str = "work", args: bytes = b"{}", **options: Any) -> NewJob:
    chosen: dict[str, Any] = {"queue": "default", "priority": 5} | options
    return NewJob(task, args, JobOptions(**chosen).checked(), json.dumps(of).encode() if of else None)


def put(connection: Connection, of: Mapping[str, Any] | None, count: int = 1, **options: Any) -> list[int]:
    """Enqueue jobs with these keys; return their ids."""
    return [job.id for job in do(connection, transitions.enqueue([limited_job(of, **options)] * count))]


def set_limit(connection: Connection, name: str, limit: Limit | Rate, queue: str | None = None) -> None:
    kind = "slots" if isinstance(limit, Limit) else "rate"
    changed = do(connection, limits.change(name, kind, limit.numbers, queue=queue, actor="test", note=None))
    assert changed


class AllLanes:
    """A container of every lane."""

    def __contains__(self, _: object) -> bool:
        return True


class Claimer:
    """The claims of one worker, with its state: its position, and the limiters that its jobs left.

    `slot_groups`: jobs of one key may share a slot.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        tasks: Collection[str] = ("work",),
        queue: str = "default",
        lease: float = 1e9,
        slot_groups: bool = False,
    ) -> None:
        self._slow_lanes: Any = () if slot_groups else AllLanes()
        self.memory = KnownLimiters()
        self.connection = connection
        self.tasks = tasks
        self.queue = queue
        self.session = session(connection, tasks=tasks, queues={queue: 10}, lease=lease)
        self.holding: dict[int, list[int]] = {}
        self.freed: dict[int, set[int]] = {}
        self._after: dict[tuple[str, int], float] = {}

    def plain(self, free_slots: int = 10) -> list[ClaimedJob]:
        return do(self.connection, transitions.claim(self.session, self.tasks, [wanted(free_slots, self.queue)])).jobs

    def wake(self) -> int:
        return do(self.connection, lane_claim.open_lanes(0))[0]

    def claim(self, free_slots: int = 10, *, now: int | None = None, turned: bool = False) -> LaneClaim:
        """Run one claim in a transaction, and a second one if limiters had to be created first."""
        result = self._claim(free_slots, now, turned=turned)
        if result.lacks_limiters is None or self.is_in_transaction:
            return result
        do(self.connection, lane_claim.make_limiters(result.lacks_limiters, [self.queue]))
        return result if result.jobs else self._claim(free_slots, now, turned=turned)

    @property
    def is_in_transaction(self) -> bool:
        return self.connection.info.transaction_status != TransactionStatus.IDLE

    def _claim(self, free_slots: int, now: int | None, *, turned: bool) -> LaneClaim:
        order = list(reversed(PRIORITIES)) if turned else list(PRIORITIES)
        request = wanted(free_slots, self.queue) | {
            "now": free_slots if now is None else now,
            "lanes": free_slots,
            "bands": [{"band": band, "after": self._after.get((self.queue, band), 0.0)} for band in order],
        }
        freed, self.freed = self.freed, {}
        known = self.memory.known()
        bands = [FAIR_BAND, *order] if turned else [*order, FAIR_BAND]
        try:
            with self.connection.transaction():
                result = do(
                    self.connection,
                    lane_claim.claim_lanes(
                        self.session,
                        self.tasks,
                        [request],
                        {limiter: len(ids) or 1 for limiter, ids in freed.items()},
                        bands,
                        self._slow_lanes,
                        known,
                    ),
                )
        except BaseException:
            self.freed = freed
            raise
        for limiter in result.blocking:
            self.freed.setdefault(limiter, set())
        for limiter in result.missed:
            self.freed.setdefault(limiter, set()).update(freed.get(limiter, ()))
        self.holding.update(result.holding)
        self.memory.learn(known, result)
        self._after.update(result.after)
        return result

    def take(self, free_slots: int = 10) -> list[int]:
        """Wake lanes and claim; return the ids, in order."""
        self.wake()
        return sorted(job.id for job in self.claim(free_slots).jobs)

    def take_all(self, free_slots: int = 10) -> list[int]:
        """Claim until a worker would stop; like a worker, reverse the order of bands periodically."""
        found: list[int] = []
        empty = 0
        while empty <= AGEING:
            self.wake()
            jobs = self.claim(free_slots, turned=empty == AGEING).jobs
            empty = 0 if jobs else empty + 1
            found += [job.id for job in jobs]
        return sorted(found)

    def left(self, ids: Collection[int], succeeded: Collection[int] = ()) -> None:
        """Record that jobs ended: the worker considers their limiters free."""
        for job_id in ids:
            limiters = self.holding.pop(job_id, ())
            for limiter in limiters:
                self.freed.setdefault(limiter, set()).add(job_id)
            if job_id in succeeded:
                self.memory.ended(job_id, limiters)

    def finish(self, claimed: Sequence[ClaimedJob], ending: Any = None) -> set[int]:
        """Settle jobs, and record their limiters as free."""
        ours = end(self.connection, self.session, claimed, decided(ending))
        self.left([job.id for job in claimed], ours if ending is None else ())
        return ours


def running(connection: Connection) -> list[int]:
    return [row[0] for row in connection.execute("select id from sereno.jobs where state = 'running' order by id")]
