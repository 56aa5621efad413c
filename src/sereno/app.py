"""The application: where everything is put together. The only place that knows everyone."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from sereno.archive.client import Archive
from sereno.bulk.operations import changes
from sereno.channels.contract import Chain
from sereno.channels.registry import Channels
from sereno.database import roles
from sereno.database.connect import connect
from sereno.database.database import Database
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.migrate import Migration, check, migrate
from sereno.database.statement import Operation
from sereno.decorators import BatchDecorator, ScheduleDecorator, TaskDecorator
from sereno.duration import Duration
from sereno.errors import ConfigurationError
from sereno.jobs.enqueue import aenqueue, enqueue
from sereno.jobs.enqueue_stream import aenqueue_stream, enqueue_stream
from sereno.jobs.job import DEFAULT_PRIORITY, Job, JobOptions, NewJob
from sereno.jobs.keys import keys_of
from sereno.jobs.limits.client import LimitsClient
from sereno.jobs.limits.limit import Limits
from sereno.jobs.retry import Backoff
from sereno.jobs.task import DEFAULT_TIMEOUT, Registry, define, define_queue
from sereno.jobs.task_handle import Task
from sereno.jobs.task_rows import declare_code
from sereno.monitoring.alerts.registry import AlertRegistry
from sereno.monitoring.alerts.scheduler import scheduler_with_alerts
from sereno.notifications.client import ChannelName, Event, Notifications
from sereno.notifications.event import Digest, Throttle
from sereno.notifications.recipients.client import Inbox, Recipients
from sereno.procedures.task import ProcedureOptions, declared
from sereno.schedules.client import Schedules
from sereno.schedules.rules.when import Every, When
from sereno.schedules.schedule import ScheduleOptions
from sereno.schedules.scheduler import Scheduler
from sereno.settings import load
from sereno.worker import bulk_task
from sereno.worker.context import Context
from sereno.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
Payload = TypeVar("Payload")


class Sereno:
    """One application: its tasks, and the database that they live in. Nothing connects until it is used.

    The database is `database_url`, `SERENO_DATABASE_URL` or `DATABASE_URL`; without any, an embedded PostgreSQL under
    `.sereno/` starts when it is first needed.
    """

    def __init__(self, database_url: str | None = None, **settings: Any) -> None:
        self._given = {"database_url": database_url, **settings}
        self.settings, self.setting_sources = load(self._given)
        self.registry = Registry()
        self.embedded: EmbeddedPostgres | None = None
        self.database = Database(self.settings, self._find_database)
        self._home = home_of(sys._getframe(1).f_globals)  # noqa: SLF001 - whose code this is, nothing else says
        self.schedules = Schedules(self.database, lambda: self.service)
        self.limits = LimitsClient(self.database)
        self.notifications = Notifications(self.database, self.task, self._each_minute, lambda: self.settings.channels)
        self.recipients = Recipients(self.database, self.notifications.channels.check_address)
        self.inbox = Inbox(self.database)
        self.alerts = AlertRegistry(
            self.database, self.notifications.channels.known, self.notifications.dispatch.exchange, self.task
        )
        self.archive = Archive(self.database, self.task)
        self.schedules.others = lambda: self.archive.schedules(self.schedules)

    @property
    def service(self) -> str:
        """The name under which this code declares schedules; two services on one database leave each other's alone."""
        return self.settings.service or self._home

    @property
    def url(self) -> str:
        """The database's address, for connections of your own; starts the embedded one where that is the one."""
        return self.database.url

    def override(self, **settings: Any) -> None:
        """What the command line says wins over the constructor; None means: not said. Before first use only."""
        self._given.update((name, value) for name, value in settings.items() if value is not None)
        self.settings, self.setting_sources = load(self._given)
        self.database.configure(self.settings)

    # Tasks

    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        batch: int,
        name: str | None = None,
        queue: str = "default",
        priority: int = DEFAULT_PRIORITY,
        retry: Backoff | int | None = None,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        history: bool = True,
        settle_at_once: bool = False,
        concurrency: Limits = None,
        rate: Limits = None,
        fair_key: str | None = None,
        order_key: str | None = None,
        dead_blocks: bool = False,
        tenants: bool = True,
    ) -> BatchDecorator: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = DEFAULT_PRIORITY,
        retry: Backoff | int | None = None,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        isolate: bool = False,
        history: bool = True,
        settle_at_once: bool = False,
        concurrency: Limits = None,
        rate: Limits = None,
        fair_key: str | None = None,
        order_key: str | None = None,
        dead_blocks: bool = False,
        tenants: bool = True,
    ) -> TaskDecorator: ...
    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = DEFAULT_PRIORITY,
        retry: Backoff | int | None = None,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        isolate: bool = False,
        batch: int = 0,
        history: bool = True,
        settle_at_once: bool = False,
        concurrency: Limits = None,
        rate: Limits = None,
        fair_key: str | None = None,
        order_key: str | None = None,
        dead_blocks: bool = False,
        tenants: bool = True,
    ) -> Any:
        """Make a function a task. With `ctx: Context` as its first parameter it gets its context.

        retry: a Backoff, or just how many retries. timeout: "10m" by default, None for none. isolate: in a process of
        its own. batch=100: gets a list of up to 100 jobs' items, answers with one outcome each. history=False:
        successes are not kept. settle_at_once: its outcome is written immediately, not with the next batch.
        concurrency=Limit(2, key="{tenant}"): at most two at once for each tenant. rate=Rate(10, per="1s"): at most ten
        starts a second. fair_key="{tenant}": tenants take turns. order_key="{account}": one after another, in order;
        dead_blocks: a dead one stops those behind it. tenants=False: no token of one tenant can have it run over HTTP.
        """

        def decorate(decorated: Callable[..., Any]) -> Task[..., Any]:
            definition = define(
                decorated,
                context=Context,
                name=name,
                queue=queue,
                priority=priority,
                retry=retry,
                timeout=timeout,
                isolate=isolate,
                batch=batch,
                history=history,
                settle_at_once=settle_at_once,
                concurrency=concurrency,
                rate=rate,
                fair_key=fair_key,
                order_key=order_key,
                dead_blocks=dead_blocks,
                tenants=tenants,
            )
            self.registry.add(definition)
            return Task(definition, self.database, self.registry)

        return decorate if function is None else decorate(function)

    def procedure(self, name: str, /, **options: Unpack[ProcedureOptions]) -> Task[..., None]:
        """A stored procedure or function as a task: `app.procedure("reporting.close_day").enqueue(day="2026-11-01")`.

        It has to be allowed (`sereno procedure allow`). `target`: another database. `task`: another name for the task.
        `tenant`: whose its jobs are. `tenants`: False unless given. The other options are those of `@app.task`.
        """
        definition, common = declared(self.database, name, options)
        self.registry.add(definition)
        return Task(definition, self.database, self.registry, common)

    def queue(self, name: str, *, concurrency: Limits = None, rate: Limits = None, fair_key: str | None = None) -> None:
        """What holds for all jobs of a queue: `app.queue("reconcile", concurrency=Limit(10), fair_key="{tenant}")`."""
        self.registry.add_queue(define_queue(name, concurrency=concurrency, rate=rate, fair_key=fair_key))

    # Schedules

    def schedule(
        self,
        when: When,
        /,
        *,
        key: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleDecorator:
        """Run a task by the clock: `@app.schedule(Cron("30 9 * * 1-5", tz="Europe/Riga"))` above a function or a task.

        Written when a worker starts; disabled when it leaves the code. `key`: the task's name unless given.
        `arguments`: those of the job. `options`: as in `app.schedules.new`.
        """

        def decorate(decorated: Any) -> Any:
            task = decorated if isinstance(decorated, Task) else self.task(decorated)
            job = task.job(**(arguments or {}))
            self.schedules.declare(self.schedules.new(key or task.name, job, when, **options))
            return task

        return cast(ScheduleDecorator, decorate)

    def cycle(self, when: When, /, *, key: str | None = None, **options: Unpack[ScheduleOptions]) -> ScheduleDecorator:
        """A schedule that never overlaps itself: `@app.cycle(Every("2m"))`."""
        if options.get("overlap", "skip") != "skip":
            raise ConfigurationError("a cycle never overlaps itself: use @app.schedule for another overlap")
        return self.schedule(when, key=key, **options)

    # Notifications

    @property
    def channels(self) -> Channels:
        """How deliveries leave the house, by name."""
        return self.notifications.channels

    def event(
        self,
        name: str,
        payload: type[Payload],
        /,
        *,
        channels: Sequence[ChannelName | Chain],
        category: str | None = None,
        critical: bool = False,
        opt_in: bool = False,
        ttl: Duration | None = None,
        throttle: Throttle | None = None,
        digest: Digest | None = None,
    ) -> Event[Payload]:
        """A kind of fact that people may want to hear of; `await event.anotify(…)` tells them.

        channels: those by which it is told; `expo.then(sms, after="20m")` is one that has another behind it. category:
        under which people choose. critical: nobody's preferences or quiet hours hold it up. opt_in: only for those who
        asked for it. ttl: not sent after that long. throttle: no more than so many for one recipient. digest: gathered
        for a while and told in one message.
        """
        return self.notifications.define(
            name,
            payload,
            channels=channels,
            category=category,
            critical=critical,
            opt_in=opt_in,
            ttl=ttl,
            throttle=throttle,
            digest=digest,
        )

    def _each_minute(self, job: NewJob) -> None:
        self.schedules.declare(self.schedules.new(job.task, job, Every("1m"), overlap="skip"))

    # Enqueue

    def enqueue_many(self, jobs: Iterable[NewJob], connection: Any = None) -> list[Job]:
        """Any number of jobs, all or none: a list with one statement, a generator while it is still making them."""
        if isinstance(jobs, Sequence) or connection is not None:
            return enqueue(self.database, list(jobs), connection)
        return enqueue_stream(self.database, jobs)

    async def aenqueue_many(self, jobs: Iterable[NewJob], connection: Any = None) -> list[Job]:
        """`enqueue_many` for async code."""
        if isinstance(jobs, Sequence) or connection is not None:
            return await aenqueue(self.database, list(jobs), connection)
        return await aenqueue_stream(self.database, jobs)

    def new_job(self, task: str, arguments: bytes, options: JobOptions | None = None) -> NewJob:
        """A job for a task known by name, from JSON: checked like any other."""
        definition = self.registry.find(task)
        raw = definition.arguments.encode_json(arguments, self.settings.arguments_limit)
        chosen = options or JobOptions()
        priority = definition.priority if chosen.priority is None else chosen.priority
        checked = replace(chosen, queue=chosen.queue or definition.queue, priority=priority).checked()
        rules = self.registry.rules(definition, checked.queue or definition.queue)
        return NewJob(task, raw, checked, keys_of(definition, rules, checked, raw) if rules else None)

    # Run

    def worker(self, queues: Mapping[str, int] | None = None, **options: Any) -> Worker:
        """A worker for this process; `await worker.run()` until `worker.stop()`."""
        self.archive.register()
        return Worker(
            self.database,
            self._registry_for_worker(),
            queues or self.default_queues(),
            service=self.service,
            declare_more=self._declare_notifications,
            on_close=self.notifications.dispatch.close,
            **options,
        )

    def _registry_for_worker(self) -> Registry:
        """Return the registry; if it has tasks at all, with those of alerts and bulk operations."""
        if len(self.alerts.register(self.registry)):
            bulk_task.register(
                self.registry, self.database, changes(partial(self.notifications.requeue_operation, only_known=True))
            )
        return self.registry

    def _declare_notifications(self) -> Operation[None]:
        yield from self.notifications.declare()
        yield from self.alerts.declare()

    def scheduler(self) -> Scheduler | None:
        """Return a scheduler with its alert watcher; None where the settings turn it off."""
        return scheduler_with_alerts(self.database.url, self.settings) if self.settings.scheduler else None

    def declare(self) -> None:
        """Write what the code says, as a worker does: limits first, so that the first jobs of a schedule pass them."""
        self.database.run(declare_code(self.registry, self.service))
        self.schedules.synchronise()

    async def adeclare(self) -> None:
        await self.database.arun(declare_code(self.registry, self.service))
        await self.schedules.asynchronise()

    @contextlib.asynccontextmanager
    async def working(self, queues: Mapping[str, int] | None = None) -> AsyncIterator[Worker]:
        """A worker beside your own code: `async with app.working(): …`. It drains on the way out."""
        worker = self.worker(queues)
        await self.adeclare()
        scheduler = self.scheduler()
        if scheduler is not None:
            scheduler.start()
        task = asyncio.create_task(worker.run())
        registered = asyncio.create_task(worker.registered.wait())
        try:
            await asyncio.wait([task, registered], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()  # it could not begin; this says why
            yield worker
        finally:
            registered.cancel()
            if scheduler is not None:
                await scheduler.stop()
            worker.stop()
            await task

    def default_queues(self) -> dict[str, int]:
        """As set, or every queue that a task of this application names, plus `default`."""
        if self.settings.queues:
            return {name: slots or self.settings.concurrency for name, slots in self.settings.queues.items()}
        return dict.fromkeys([*self.registry.queues, "default"], self.settings.concurrency)

    # Schema

    def migrate(self) -> list[Migration]:
        """Bring the schema up to date; answers what was applied."""
        with connect(self.database.url, self.settings, "migrate") as connection:
            applied = migrate(connection, self.settings.schema)
            if applied and (prefix := roles.prefix_of(connection, self.settings.schema)):
                # What is new belongs to the owner, and each login gets what it needs of it.
                roles.create(connection, self.settings.schema, prefix)
            return applied

    def check_schema(self) -> None:
        """SchemaError unless the schema is there and new enough."""
        with connect(self.database.url, self.settings, "check") as connection:
            check(connection, self.settings.schema)

    # The end

    def close(self) -> None:
        """Give back connections, and the embedded PostgreSQL if this is its last user."""
        self.database.close()
        if self.embedded is not None:
            self.embedded.stop()
            self.embedded = None
            self.database.forget_url()

    async def aclose(self) -> None:
        """`close` for async code."""
        await self.database.aclose()
        self.close()

    def _find_database(self) -> str:
        if self.settings.database_url:
            return self.settings.database_url
        bin_dir = self.settings.postgres_bin
        self.embedded = EmbeddedPostgres(Path(self.settings.directory), bin_dir=Path(bin_dir) if bin_dir else None)
        url = self.embedded.start()
        with connect(url, self.settings, "migrate") as connection:
            migrate(connection, self.settings.schema)
        return url


def home_of(names: Mapping[str, Any]) -> str:
    """The module in which an application is made; a script by its file's name."""
    module = str(names.get("__name__", "app"))
    return Path(str(names.get("__file__", "app"))).stem if module == "__main__" else module
