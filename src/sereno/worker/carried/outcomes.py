"""What follows from the outcomes of carried jobs.

A success without history is done: it costs PostgreSQL nothing. Every other outcome comes home: the job is stored in
`sereno.jobs` as a running job of the worker's session and settled there like any other. A message is acknowledged when
all its jobs have a durable outcome.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import psycopg

from sereno.carriers import store
from sereno.carriers.contract import CarriedMessage
from sereno.database.connect import ServiceConnection
from sereno.database.statement import Operation
from sereno.error_text import class_name, storable
from sereno.errors import CarrierUnavailable, DatabaseUnavailable, LeaseLost
from sereno.jobs.attempt import Settlement, Throttle
from sereno.jobs.job import ClaimedJob
from sereno.jobs.settlement import SettleResult
from sereno.telemetry.log_events import emit
from sereno.telemetry.metrics import MetricTally
from sereno.telemetry.service import Service
from sereno.worker.carried.held_message import HeldMessage
from sereno.worker.carried.held_messages import HeldMessages
from sereno.worker.claiming.claimer import Claimer
from sereno.worker.hooks import HookCaller
from sereno.worker.settler import Settler

# Jobs stored in PostgreSQL by one statement, and waiting ones above which no more messages are fetched.
LARGEST_BATCH = 1000
MOST_WAITING = 2000
# Bytes of held messages, and undecodable messages, above which no more messages are fetched.
MOST_BYTES = 64 * 1024 * 1024
MOST_PARKED = 20
# Seconds between two rounds if nothing wakes the loop.
ROUND = 5.0
LEASE_LOST = class_name(LeaseLost(""))


@dataclass(frozen=True, slots=True, eq=False)
class Home:
    """The session whose jobs are stored in PostgreSQL, and what settles them."""

    session: int
    settler: Settler
    claimer: Claimer


@dataclass(slots=True)
class _ToStore:
    """A job that comes home: with its outcome, or to run from PostgreSQL (None)."""

    job_id: int
    outcome: SettleResult | None
    job: ClaimedJob | None = None

    @property
    def is_success(self) -> bool:
        """Whether the job goes into the history, and nothing else belongs to it."""
        outcome = self.outcome
        return outcome is not None and outcome.settlement.outcome == "succeeded" and not outcome.side_rows


@dataclass(slots=True)
class _Parked:
    """A message that cannot be decoded."""

    queue: str
    message: CarriedMessage
    reason: str


class CarriedOutcomes(Service):
    """Takes the outcomes of carried jobs, in place of the settler."""

    def __init__(self, connection: ServiceConnection, tally: MetricTally, hooks: HookCaller | None) -> None:
        super().__init__("carried outcomes")
        self.hooks = hooks
        self.home: Home | None = None
        self.messages = HeldMessages()
        self.is_draining = False
        # Called when outcomes no longer wait for PostgreSQL in numbers: more messages can be fetched.
        self.on_room: Callable[[], None] = lambda: None
        self._connection = connection
        self._tally = tally
        self._to_store: list[_ToStore] = []
        # By queue and position: a message that waits for PostgreSQL is delivered again and again.
        self._parked: dict[tuple[str, int], _Parked] = {}
        self._stored_all = asyncio.Event()
        # Jobs that were stored in PostgreSQL while their handler ran, and with which session.
        self._stored: dict[int, Home] = {}

    # Called by the consumer

    def bring_home(self, jobs: Collection[ClaimedJob], reason: str | None) -> None:
        """Store jobs in PostgreSQL: released for any worker, with a reason, or to run from there in this worker."""
        for job in jobs:
            release = Settlement("release", reason=reason, started=False)
            outcome = None if reason is None else SettleResult(job.id, job.attempt, 0.0, release)
            self._to_store.append(_ToStore(job.id, outcome, job))
        self.wake()

    def park(self, queue: str, message: CarriedMessage, reason: str) -> None:
        """Store an undecodable message in PostgreSQL as a dead job."""
        self._parked[queue, message.position] = _Parked(queue, message, reason)
        self.wake()

    @property
    def is_behind(self) -> bool:
        waiting = len(self._to_store) >= MOST_WAITING or len(self._parked) >= MOST_PARKED
        return waiting or self.messages.bytes >= MOST_BYTES

    @property
    def held_messages(self) -> int:
        return len(self.messages)

    # Called by the executor, as it calls a settler

    def add(self, item: SettleResult, *, at_once: bool = False) -> None:
        """Take the outcome of an attempt."""
        if self._stored and (home := self._stored.pop(item.id, None)) is not None:
            self._hand_over(item.id, home if home is self.home else None)
            if home is self.home:
                home.settler.add(item, at_once=at_once)
            return
        outcome = item.settlement.outcome
        if outcome == "succeeded" and not item.keep_history and not item.side_rows:
            self.messages.done(item.id)
            if self.hooks is not None:
                self.hooks.settled([item], set())
        elif outcome != "release" or not self.is_draining:
            # A job that is released because the worker stops has no outcome: its message is given back.
            self._to_store.append(_ToStore(item.id, _without_charge(item)))
            self.wake()

    def confirm(self, job: ClaimedJob) -> None:
        """Note that the handler's own transaction has stored and settled the job."""
        home = self._stored.pop(job.id, None)
        if home is not None:
            self._hand_over(job.id, home)
            home.settler.confirm(job)
            return
        self.messages.done(job.id)
        if self.hooks is not None:
            self.hooks.succeeded(job)

    def throttle(self, job_id: int, attempt: int, wanted: Throttle) -> None:
        if self.home is not None:
            self.home.settler.throttle(job_id, attempt, wanted)

    # Called by the contexts of handlers

    def store_running(self, jobs: Collection[ClaimedJob], session: int) -> Operation[None]:
        """Store running jobs in PostgreSQL, or raise LeaseLost if they have an outcome already."""
        rows = [held.row(job.id, job.seen) for job in jobs if (held := self.messages.get(job.id)) is not None]
        if not session or len(rows) < len(jobs):
            raise LeaseLost(f"job {min(job.id for job in jobs)}: the worker no longer holds it")
        stored = yield from store.store(session, rows)
        if missing := [job.id for job in jobs if job.id not in stored]:
            raise LeaseLost(f"job {missing[0]}: it was delivered again, and another worker has settled it")

    def is_storing(self, jobs: Collection[ClaimedJob], session: int) -> None:
        """Note that running jobs will be in PostgreSQL: from then on they count as held by the session."""
        if self.home is not None and self.home.session == session:
            self.home.claimer.held.update({job.id: job.attempt for job in jobs})

    def has_stored(self, jobs: Collection[ClaimedJob], session: int) -> None:
        """Note that running jobs are in PostgreSQL now: the session settles them."""
        home = self.home
        for job in jobs:
            if home is not None and home.session == session:
                self._stored[job.id] = home
            self.messages.done(job.id)

    # The loop

    async def run_once(self) -> float:
        if self.home is not None:
            await self._store()
            await self._store_parked()
        return 0.0 if self.home is not None and self._to_store else ROUND

    async def _store(self) -> None:
        """Store jobs that come home, and settle them there."""
        while self._to_store and self.home is not None:
            batch = self._to_store[:LARGEST_BATCH]
            await self._record([each for each in batch if each.is_success], self.home)
            await self._store_batch(batch, self.home)
            was_behind = self.is_behind
            del self._to_store[: len(batch)]
            if was_behind and not self.is_behind:
                self.on_room()
        self._stored_all.set()

    async def _record(self, batch: list[_ToStore], home: Home) -> None:
        """Store successes in the history. A batch that cannot be stored there goes the way of the other outcomes."""
        found = {
            each.job_id: (each.outcome, held)
            for each in batch
            if each.outcome is not None and (held := self.messages.get(each.job_id)) is not None
        }
        if not found:
            return
        rows = [held.success(outcome) for outcome, held in found.values()]
        try:
            recorded = await self._connection.run(store.record(home.session, rows))
        except DatabaseUnavailable:
            raise
        except Exception:  # noqa: BLE001 - one of the rows is bad: the settler finds it, and says what is wrong
            return
        for job_id in found:
            if job_id not in recorded:
                self._fenced(job_id)
            self.messages.done(job_id)
        if self.hooks is not None:
            self.hooks.settled([outcome for outcome, _ in found.values()], found.keys() - recorded)

    async def _store_batch(self, batch: list[_ToStore], home: Home) -> None:
        # Those that an interrupted round has stored have no message any more.
        found = [(each, held) for each in batch if (held := self.messages.get(each.job_id)) is not None]
        batch = [each for each, _ in found]
        rows = [held.row(each.job_id, held.received) for each, held in found]
        # Before they are stored: the session releases running jobs that it does not hold.
        home.claimer.held.update({each.job_id: 1 for each in batch})
        try:
            stored = await self._connection.run(store.store(home.session, rows)) if rows else set()
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one of the rows cannot be stored: find it
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._store_batch(batch[:middle], home)
                await self._store_batch(batch[middle:], home)
                return
            if isinstance(error, psycopg.errors.UniqueViolation):
                # Another session has stored it in the meantime.
                stored = set()
            else:
                await self._refused(found[0], home, storable(error))
                return
        for each in batch:
            if each.job_id in stored:
                self._settle_home(each, home)
            else:
                home.claimer.held.pop(each.job_id, None)
                self._fenced(each.job_id)
            self.messages.done(each.job_id)

    def _settle_home(self, each: _ToStore, home: Home) -> None:
        if each.outcome is None:
            assert each.job is not None
            home.claimer.take_stored(each.job)
        else:
            self._hand_over(each.job_id, home)
            home.settler.add(each.outcome)

    def _hand_over(self, job_id: int, home: Home | None) -> None:
        """Let the hooks of the session know the attempt that it settles."""
        if self.hooks is not None:
            self.hooks.hand_over(job_id, 1, None if home is None else home.settler.hooks)

    def _fenced(self, job_id: int) -> None:
        self._hand_over(job_id, None)
        self._tally.fenced += 1
        message = f"job {job_id}: its message was delivered again, and another worker has settled it"
        emit(logging.WARNING, "job.fenced", message, job_id=job_id)

    async def _refused(self, found: tuple[_ToStore, HeldMessage], home: Home, reason: str) -> None:
        """Store a job that PostgreSQL refuses as a dead job with its bytes."""
        each, held = found
        home.claimer.held.pop(each.job_id, None)
        self._hand_over(each.job_id, None)
        row = held.row(each.job_id, held.received)
        args = bytes(row["args"])
        await self._connection.run(
            store.park(home.session, row["queue"], row["position"], args, reason, row["task"], each.job_id)
        )
        self.messages.done(each.job_id)

    async def _store_parked(self) -> None:
        for key, each in list(self._parked.items()):
            if self.home is None:
                return
            position, body = each.message.position, each.message.body
            await self._connection.run(store.park(self.home.session, each.queue, position, body, each.reason))
            message = f"queue {each.queue}: message {position} was stored as a dead job: {each.reason}"
            emit(logging.ERROR, "message.undecodable", message, queue=each.queue)
            del self._parked[key]
            with suppress(CarrierUnavailable):
                await each.message.acknowledge()

    async def flushed(self) -> None:
        """Wait until no job waits to be stored in PostgreSQL."""
        while self._to_store and self.home is not None:
            self._stored_all.clear()
            self.wake()
            await self._stored_all.wait()

    async def give_back(self) -> None:
        """Give back every message, with the outcomes that its jobs have so far; the worker stops."""
        try:
            await self.messages.give_back()
        except CarrierUnavailable as error:
            emit(logging.WARNING, "messages.not_given_back", f"messages are delivered again in 30 s: {error}")


def _without_charge(item: SettleResult) -> SettleResult:
    """Return a release in place of a failure because of a lost session: the job runs again, and nothing has failed."""
    error = item.settlement.error
    if error is None or error.kind != LEASE_LOST:
        return item
    release = Settlement("release", reason="the session of its worker was lost")
    return msgspec.structs.replace(item, settlement=release, fingerprint=None)
