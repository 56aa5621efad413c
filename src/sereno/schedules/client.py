"""`app.schedules`: create, change, list and fire schedules, sync or async, optionally in the caller's transaction."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from sereno.access.actor import default_actor
from sereno.database.client import DatabaseClient
from sereno.database.database import Database
from sereno.database.driver import adrive, drive
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError, InvalidSchedule
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.handle import Job
from sereno.jobs.job import NewJob
from sereno.schedules import operations, queries, store
from sereno.schedules.declarations import synchronise
from sereno.schedules.rows import FireRow, ScheduleRow, UpsertResult
from sereno.schedules.rules.preview import Instant, preview
from sereno.schedules.rules.when import When, checked
from sereno.schedules.schedule import NewSchedule, ScheduleOptions, SchedulePolicies, shift
from sereno.schedules.ticker import Ticker, TickResult, passes

T = TypeVar("T")


class ScheduleSelection(TypedDict, total=False):
    """Selects schedules besides by key, and names who changes them and why."""

    tenant: str
    task: str
    note: str
    actor: str


# Schedules per upsert statement.
CHUNK = 5000


class Schedules(DatabaseClient):
    """Every method has an async twin with the prefix `a`. Pass `connection` to write in your own transaction."""

    def __init__(self, database: Database, default_service: str) -> None:
        super().__init__(database)
        # The name of the service where the settings have none.
        self.default_service = default_service
        self._declared: dict[str, NewSchedule] = {}
        self._built_in: list[Callable[[], Sequence[NewSchedule]]] = []

    @property
    def service(self) -> str:
        """The name under which this code declares schedules; a service never changes the schedules of another one."""
        return self._database.settings.service or self.default_service

    # Write

    def new(
        self, key: str, job: NewJob, when: When, *, tenant: str | None = None, **options: Unpack[SchedulePolicies]
    ) -> NewSchedule:
        """Return a schedule for `upsert_many`. Raises InvalidSchedule if it is invalid."""
        if isinstance(job, NewJob) and job.has_own_limits:
            raise InvalidSchedule(
                f"schedule {key}: a schedule does not store limits given with using(…); declare them on the task, "
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
    ) -> UpsertResult:
        """Create or change a schedule. An unchanged one is not written. `options` are those of `new`."""
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
    ) -> UpsertResult:
        schedule = self.new(key, job, when, **options)
        return (await self._arun(_upsert([schedule], _wanted_state(enabled)), connection))[0]

    def upsert_many(self, schedules: Iterable[NewSchedule], connection: Any = None) -> list[UpsertResult]:
        """Create or change any number of schedules, all of them or none."""
        return self._run(_upsert(list(schedules)), connection)

    async def aupsert_many(self, schedules: Iterable[NewSchedule], connection: Any = None) -> list[UpsertResult]:
        return await self._arun(_upsert(list(schedules)), connection)

    # Change

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
        """Pause schedules, for good or `until` a moment; "menu:*" is a pattern. Return how many were paused."""
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
        """Resume schedules from now on. `which`: tenant, task, actor. Return how many were resumed."""
        return self._run(_change(operations.resume, key, which), connection)

    async def aresume(
        self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]
    ) -> int:
        return await self._arun(_change(operations.resume, key, which), connection)

    def disable(self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]) -> int:
        """Disable schedules until they are resumed. `which`: tenant, task, note, actor. Return how many."""
        return self._run(_change(operations.disable, key, which), connection)

    async def adisable(
        self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]
    ) -> int:
        return await self._arun(_change(operations.disable, key, which), connection)

    def delete(self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]) -> int:
        """Delete schedules; their jobs stay as history. Return how many were deleted."""
        return self._run(_change(operations.delete, key, which), connection)

    async def adelete(
        self, key: str | None = None, *, connection: Any = None, **which: Unpack[ScheduleSelection]
    ) -> int:
        return await self._arun(_change(operations.delete, key, which), connection)

    def run(self, key: str, *, actor: str | None = None, connection: Any = None) -> Job[Any]:
        """Run a schedule now, independently of its rule."""
        return Job(self._database, self._run(operations.run_now(key, actor=actor), connection), None)

    async def arun(self, key: str, *, actor: str | None = None, connection: Any = None) -> Job[Any]:
        return Job(self._database, await self._arun(operations.run_now(key, actor=actor), connection), None)

    # Read

    def get(self, key: str) -> ScheduleRow:
        """Return one schedule. Raises InvalidSchedule if there is none with this key."""
        return self._run(operations.find(key), None)

    async def aget(self, key: str) -> ScheduleRow:
        return await self._arun(operations.find(key), None)

    def list(self, key: str | None = None, *, limit: int = 100, after: str = "", **which: Any) -> list[ScheduleRow]:
        """Return a page of schedules by key; `after` is the last key of the previous page."""
        return self._run(queries.page(ScheduleFilter.of(key, **which), limit, after), None)

    async def alist(
        self, key: str | None = None, *, limit: int = 100, after: str = "", **which: Any
    ) -> Sequence[ScheduleRow]:
        return await self._arun(queries.page(ScheduleFilter.of(key, **which), limit, after), None)

    def history(self, key: str, limit: int = 30) -> Sequence[FireRow]:
        """Return the newest fires first: the job and its outcome, or why the fire was skipped."""
        return self._run(_history(key, limit), None)

    async def ahistory(self, key: str, limit: int = 30) -> Sequence[FireRow]:
        return await self._arun(_history(key, limit), None)

    @staticmethod
    def preview(when: When, n: int = 5, *, after: datetime | None = None, key: str | None = None) -> Sequence[Instant]:
        """Return the next instants of a rule, with a note at each clock change. Uses no database."""
        rule = checked(when)
        return preview(rule, after or datetime.now(UTC), n, shift(key, rule) if key else 0)

    # Fire

    def tick(self) -> TickResult:
        """Fire what is due now, for programs that run without a scheduler process."""
        return drive(passes(Ticker()), self._database.run)

    async def atick(self) -> TickResult:
        return await adrive(passes(Ticker()), self._database.arun)

    # Declared in code

    def declare(self, schedule: NewSchedule) -> None:
        """Register a schedule as part of the application's code; it is written when a worker starts."""
        if schedule.key in self._declared:
            raise ConfigurationError(f"schedule {schedule.key} is declared twice: give one of them another key")
        self._declared[schedule.key] = schedule

    def declare_built_in(self, make: Callable[[], Sequence[NewSchedule]]) -> None:
        """Register schedules of Sereno itself. `make` is called late: the command line may change its settings."""
        self._built_in.append(make)

    @property
    def declared(self) -> dict[str, NewSchedule]:
        return self._declared | {schedule.key: schedule for make in self._built_in for schedule in make()}

    def synchronise(self) -> tuple[Sequence[UpsertResult], Sequence[str]]:
        """Write the declared schedules and disable those that are no longer declared. Return both.

        A declaration that cannot be written is logged and left out; `sereno doctor` shows it.
        """
        done = drive(synchronise(self.declared, self.service), self._database.run)
        return done.written, done.left

    async def asynchronise(self) -> tuple[Sequence[UpsertResult], Sequence[str]]:
        done = await adrive(synchronise(self.declared, self.service), self._database.arun)
        return done.written, done.left


def _upsert(schedules: Sequence[NewSchedule], state: str | None = None) -> Operation[list[UpsertResult]]:
    made: list[UpsertResult] = []
    who = default_actor()
    for first in range(0, len(schedules), CHUNK):
        made += yield from store.upsert(schedules[first : first + CHUNK], who, state=state)
    return made


def _wanted_state(enabled: bool | None) -> str | None:
    return "disabled" if enabled is False else None


def _change(operation: Callable[..., Operation[int]], key: str | None, which: ScheduleSelection) -> Operation[int]:
    given = {name: which[name] for name in ("actor", "note") if name in which}
    return operation(ScheduleFilter.of(key, tenant=which.get("tenant"), task=which.get("task")), **given)


def _history(key: str, limit: int) -> Operation[list[FireRow]]:
    row = yield from operations.find(key)
    return (yield from queries.fires(row.id, limit))
