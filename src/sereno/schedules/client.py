"""`app.schedules`: as a program writes and steers them, sync and async, in its own transaction if it likes."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from sereno.access.actor import default_actor
from sereno.database.caller_connection import arun_borrowed, run_borrowed
from sereno.database.database import Database
from sereno.database.driver import adrive, drive
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, InvalidSchedule
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.job import Job, NewJob
from sereno.schedules import operations, store
from sereno.schedules.declarations import DeclarationResult, synchronise
from sereno.schedules.rules.preview import Instant, preview
from sereno.schedules.rules.when import When, checked
from sereno.schedules.schedule import NewSchedule, Policies, ScheduleOptions, shift
from sereno.schedules.store import FireRow, ScheduleRow, UpsertResult
from sereno.schedules.ticker import Ticker, TickResult, passes
from sereno.zones import moment

T = TypeVar("T")


class ScheduleSelection(TypedDict, total=False):
    """Which schedules, besides their key; who changes them, and why."""

    tenant: str
    task: str
    note: str
    actor: str


# Schedules are written in statements of this many.
CHUNK = 5000


@dataclass(frozen=True, slots=True)
class Schedule:
    """The answer to an upsert: whether it was created, changed or left as it was, and when it fires next."""

    id: int
    key: str
    what: str
    state: str
    next_run_at: datetime | None


class Schedules:
    """Every method has an async twin with an `a` in front. `connection`: yours, so that it commits with your rows."""

    def __init__(self, database: Database, service: Callable[[], str]) -> None:
        self._database = database
        self._service = service
        self._declared: dict[str, NewSchedule] = {}
        # Schedules of ours, which hang on settings that the command line may still change.
        self.others: Callable[[], Sequence[NewSchedule]] = list

    # Write

    def new(
        self, key: str, job: NewJob, when: When, *, tenant: str | None = None, **options: Unpack[Policies]
    ) -> NewSchedule:
        """A schedule for `upsert_many`. Refused here if it is wrong."""
        if isinstance(job, NewJob) and job.has_own_limits:
            raise InvalidSchedule(
                f"schedule {key}: limits given with using(…) are not kept by a schedule; declare them on the task, "
                "or on its queue with app.queue(…)"
            )
        if tenant is not None and isinstance(job, NewJob):
            job = msgspec.structs.replace(job, options=msgspec.structs.replace(job.options, tenant=tenant).checked())
        return NewSchedule(key=key, job=job, when=when, **options).checked()

    def upsert(
        self,
        key: str,
        job: NewJob,
        when: When,
        *,
        enabled: bool | None = None,
        connection: Any = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Create it, or change it to be so. Said again unchanged, it is not touched. `options`: those of `new`."""
        schedule = self.new(key, job, when, **options)
        return self._run(_upsert([schedule], _wanted_state(enabled)), connection)[0]

    async def aupsert(
        self,
        key: str,
        job: NewJob,
        when: When,
        *,
        enabled: bool | None = None,
        connection: Any = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        schedule = self.new(key, job, when, **options)
        return (await self._arun(_upsert([schedule], _wanted_state(enabled)), connection))[0]

    def upsert_many(self, schedules: Iterable[NewSchedule], connection: Any = None) -> list[Schedule]:
        """Any number, all of them or none."""
        return self._run(_upsert(list(schedules)), connection)

    async def aupsert_many(self, schedules: Iterable[NewSchedule], connection: Any = None) -> list[Schedule]:
        return await self._arun(_upsert(list(schedules)), connection)

    # Steer

    def pause(
        self,
        key: str | None = None,
        *,
        until: datetime | None = None,
        note: str | None = None,
        tenant: str | None = None,
        task: str | None = None,
        actor: str | None = None,
        connection: Any = None,
    ) -> int:
        """Stop them, until a moment or for good; "menu:*" is a pattern. Answers how many."""
        wanted = ScheduleFilter.of(key, tenant=tenant, task=task)
        return self._run(operations.pause(wanted, until=until, note=note, actor=actor), connection)

    async def apause(
        self,
        key: str | None = None,
        *,
        until: datetime | None = None,
        note: str | None = None,
        tenant: str | None = None,
        task: str | None = None,
        actor: str | None = None,
        connection: Any = None,
    ) -> int:
        wanted = ScheduleFilter.of(key, tenant=tenant, task=task)
        return await self._arun(operations.pause(wanted, until=until, note=note, actor=actor), connection)

    def resume(self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]) -> int:
        """They fire again from now on. `which`: tenant, task, actor."""
        return self._run(_steered(operations.resume, key, which), connection)

    async def aresume(
        self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]
    ) -> int:
        return await self._arun(_steered(operations.resume, key, which), connection)

    def disable(self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]) -> int:
        """They fire no more until somebody resumes them. `which`: tenant, task, note, actor."""
        return self._run(_steered(operations.disable, key, which), connection)

    async def adisable(
        self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]
    ) -> int:
        return await self._arun(_steered(operations.disable, key, which), connection)

    def delete(self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]) -> int:
        """Gone; their jobs stay as history."""
        return self._run(_steered(operations.delete, key, which), connection)

    async def adelete(
        self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]
    ) -> int:
        return await self._arun(_steered(operations.delete, key, which), connection)

    def run(self, key: str, *, actor: str | None = None, connection: Any = None) -> Job:
        """Run it now, whatever its rule says."""
        return self._run(operations.run_now(key, actor=actor), connection)

    async def arun(self, key: str, *, actor: str | None = None, connection: Any = None) -> Job:
        return await self._arun(operations.run_now(key, actor=actor), connection)

    # See

    def get(self, key: str) -> ScheduleRow:
        """One schedule, or InvalidSchedule."""
        return self._run(operations.find(key), None)

    async def aget(self, key: str) -> ScheduleRow:
        return await self._arun(operations.find(key), None)

    def list(self, key: str | None = None, *, limit: int = 100, after: str = "", **which: Any) -> list[ScheduleRow]:
        """A page by key; `after` is the last key of the page before."""
        return self._run(store.page(ScheduleFilter.of(key, **which), limit, after), None)

    async def alist(
        self, key: str | None = None, *, limit: int = 100, after: str = "", **which: Any
    ) -> Sequence[ScheduleRow]:
        return await self._arun(store.page(ScheduleFilter.of(key, **which), limit, after), None)

    def history(self, key: str, limit: int = 30) -> Sequence[FireRow]:
        """The newest fires first: what they made and how it went, or why they were skipped."""
        return self._run(_history(key, limit), None)

    async def ahistory(self, key: str, limit: int = 30) -> Sequence[FireRow]:
        return await self._arun(_history(key, limit), None)

    @staticmethod
    def preview(when: When, n: int = 5, *, after: datetime | None = None, key: str | None = None) -> Sequence[Instant]:
        """The next instants of a rule, with a note where a clock is turned. No database."""
        rule = checked(when)
        return preview(rule, after or datetime.now(UTC), n, shift(key, rule) if key else 0)

    # Fire

    def tick(self) -> TickResult:
        """Fire what is due, for whoever drives it from outside; the scheduler does this by itself."""
        return drive(passes(Ticker()), self._database.run)

    async def atick(self) -> TickResult:
        return await adrive(passes(Ticker()), self._database.arun)

    # Declared in code

    def declare(self, schedule: NewSchedule) -> None:
        """Part of the code of this application; written when a worker starts."""
        if schedule.key in self._declared:
            raise ConfigurationError(f"schedule {schedule.key} is declared twice: give one of them another key")
        self._declared[schedule.key] = schedule

    @property
    def declared(self) -> dict[str, NewSchedule]:
        return self._declared | {schedule.key: schedule for schedule in self.others()}

    def synchronise(self) -> tuple[Sequence[Schedule], Sequence[str]]:
        """Write what the code declares; disable what it declared once and no longer does. Returns both.

        A declaration that cannot be written is logged and left out; `sereno doctor` shows it.
        """
        return _both(drive(synchronise(self.declared, self._service()), self._database.run))

    async def asynchronise(self) -> tuple[Sequence[Schedule], Sequence[str]]:
        return _both(await adrive(synchronise(self.declared, self._service()), self._database.arun))

    def _run(self, operation: Operation[T], connection: Any) -> T:
        if connection is not None:
            return run_borrowed(
                connection, operation, self._database.settings.schema, notify=self._database.settings.notify
            )
        return self._database.run(operation)

    def _arun(self, operation: Operation[T], connection: Any) -> Coroutine[Any, Any, T]:
        if connection is not None:
            return arun_borrowed(
                connection, operation, self._database.settings.schema, notify=self._database.settings.notify
            )
        return self._database.arun(operation)


def _upsert(schedules: Sequence[NewSchedule], state: str | None = None) -> Operation[list[Schedule]]:
    made: list[Schedule] = []
    who = default_actor()
    for first in range(0, len(schedules), CHUNK):
        found = yield from store.upsert(schedules[first : first + CHUNK], who, state=state)
        made += map(_answer, found)
    return made


def _answer(found: UpsertResult) -> Schedule:
    at = None if found.next_run_at is None else moment(found.next_run_at)
    return Schedule(found.id, found.key, found.what, found.state, at)


def _wanted_state(enabled: bool | None) -> str | None:
    return "disabled" if enabled is False else None


def _steered(operation: Callable[..., Operation[int]], key: str | None, which: ScheduleSelection) -> Operation[int]:
    said = {name: which[name] for name in ("actor", "note") if name in which}
    return operation(ScheduleFilter.of(key, tenant=which.get("tenant"), task=which.get("task")), **said)


def _history(key: str, limit: int) -> Operation[list[FireRow]]:
    row = yield from operations.find(key)
    return (yield from store.fires(row.id, limit))


def _both(done: DeclarationResult) -> tuple[Sequence[Schedule], Sequence[str]]:
    return list(map(_answer, done.written)), done.left
