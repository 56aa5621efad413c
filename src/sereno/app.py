"""The application object: the one module that imports every package and wires them together."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from sereno.archive.client import Archive
from sereno.carriers.publisher import Publisher
from sereno.carriers.queue_methods import QueueMethods
from sereno.channels.contract import Chain
from sereno.channels.registry import Channels
from sereno.database import roles
from sereno.database.connect import connect
from sereno.database.database import Database
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.migrate import Migration, check, migrate
from sereno.database.statement import Operation
from sereno.decorators import BatchDecorator, ScheduleDecorator, TaskDecorator
from sereno.errors import ConfigurationError
from sereno.extension_points import ExtensionPoints
from sereno.jobs.bulk import Change
from sereno.jobs.encryption import KeyRing, key_ring
from sereno.jobs.group_methods import GroupMethods
from sereno.jobs.job import JobOptions, NewJob
from sereno.jobs.keys import keys_of
from sereno.jobs.limits.client import LimitsClient
from sereno.jobs.requirements import requirements_of
from sereno.jobs.signal_client import SignalMethods
from sereno.jobs.task import Registry, TaskOptions, check_options, define
from sereno.jobs.task_handle import AsyncTask, Task
from sereno.jobs.task_rows import declare_code
from sereno.monitoring.alerts.registry import AlertRegistry
from sereno.monitoring.scheduler import monitored_scheduler
from sereno.notifications.client import Notifications
from sereno.notifications.event import EventOptions
from sereno.notifications.event_handle import ChannelName, Event
from sereno.notifications.event_operations import Events
from sereno.notifications.jobs import QUEUE
from sereno.notifications.recipients.address_confirmation import AddressConfirmation
from sereno.notifications.recipients.client import Inbox, Recipients
from sereno.notifications.topics.client import Topics
from sereno.procedures.methods import ProcedureMethods
from sereno.schedules.client import Schedules
from sereno.schedules.rules.when import Every, When
from sereno.schedules.schedule import ScheduleOptions
from sereno.schedules.scheduler import Scheduler
from sereno.settings import load
from sereno.worker import bulk_task
from sereno.worker.context import Context
from sereno.worker.worker import Worker

if TYPE_CHECKING:
    from sereno.jobs.client import Jobs
    from sereno.jobs.queue_client import Queues

P = ParamSpec("P")
R = TypeVar("R")
Payload = TypeVar("Payload")


class Sereno(SignalMethods, GroupMethods, QueueMethods, ProcedureMethods, ExtensionPoints):
    """One application: its tasks, schedules and events, and their database. Nothing connects before first use.

    The database is `database_url`, `SERENO_DATABASE_URL` or `DATABASE_URL`; if none is set, an embedded PostgreSQL
    under `.sereno/` starts when it is first needed.
    """

    def __init__(self, database_url: str | None = None, **settings: Any) -> None:
        self._overrides = {"database_url": database_url, **settings}
        self.settings, self.setting_sources = load(self._overrides)
        self._keys()  # raises here for an invalid key, not at the first job
        self.registry = Registry()
        self._carry_by_settings()
        self.embedded: EmbeddedPostgres | None = None
        self.database = Database(self.settings, self._find_database)
        self.publisher = self.registry.publisher = Publisher(self.database, self.registry)
        self.database.has_carriers = lambda: bool(self.registry.carried)
        caller = sys._getframe(1).f_globals  # noqa: SLF001 - the only way to find the calling module
        self.schedules = Schedules(self.database, module_name(caller))
        self.limits = LimitsClient(self.database)
        self.notifications = Notifications(self.database, self.registry)
        self.recipients = Recipients(self.database, self.notifications.channels)
        self.inbox = Inbox(self.database)
        self.topics = Topics(self.database)
        self.events = Events(self.database, self.notifications.jobs)
        self.alerts = AlertRegistry(
            self.database, self.notifications.channels.known, self.notifications.exchanges.find, self.task
        )
        self.archive = Archive(self.database, self.task)
        self.schedules.declare_built_in(partial(self.archive.schedules, self.schedules))

    @cached_property
    def jobs(self) -> "Jobs":
        """Look jobs up, find, count, wait for, cancel, retry and delete them."""
        from sereno.jobs.client import Jobs  # noqa: PLC0415 - few processes need it

        return Jobs(self.database, self.registry)

    @cached_property
    def queues(self) -> "Queues":
        """Depth, oldest age, pause and resume of queues."""
        from sereno.jobs.queue_client import Queues  # noqa: PLC0415 - few processes need it

        return Queues(self.database)

    @property
    def service(self) -> str:
        """The name under which this code declares schedules; a service never changes the schedules of another one."""
        return self.schedules.service

    @property
    def url(self) -> str:
        """The database URL, for connections of your own. Starts the embedded PostgreSQL if that is the one in use."""
        return self.database.url

    def override(self, **settings: Any) -> None:
        """Apply command line options over the constructor's; None leaves a setting as it is. Only before first use."""
        self._overrides.update((name, value) for name, value in settings.items() if value is not None)
        self.settings, self.setting_sources = load(self._overrides)
        self._keys()
        self.database.configure(self.settings)

    # Tasks

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, *, batch: int, **options: Unpack[TaskOptions]) -> BatchDecorator: ...
    @overload
    def task(self, /, *, isolate: bool = False, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(
        self, function: Any = None, /, *, batch: int = 0, isolate: bool = False, **options: Unpack[TaskOptions]
    ) -> Any:
        """Make a function a task. A first parameter `ctx: Context` receives the context of the attempt.

        retry: a Backoff, or the number of retries. timeout: "10m" by default; None disables it. isolate: run in a
        separate process. batch=100: the function gets a list with the items of up to 100 jobs and returns one outcome
        for each. history=False: do not store successes. settle_at_once: write the outcome immediately, not in batches.
        concurrency=Limit(2, key="{tenant}"): at most two at once for each tenant. rate=Rate(10, per="1s"): at most ten
        starts a second. fair_key="{tenant}": tenants take turns. order_key="{account}": one after another, in order;
        dead_blocks: a dead job blocks the jobs after it. tenants=False: tokens of a tenant cannot run it over HTTP.
        result=False: do not store what it returns. version=2: workers with an older version leave its jobs alone.
        encrypt=True, or encrypt=["card"]: store arguments encrypted, with `encryption_keys`; True: the result too.
        """
        check_options("task", options, TaskOptions)

        def decorate(decorated: Callable[..., Any]) -> Task[..., Any]:
            definition = define(
                decorated,
                context=Context,
                batch=batch,
                isolate=isolate,
                resources=self.registry.resources,
                keys=self._keys,
                **options,
            )
            self.registry.add(definition)
            kind = AsyncTask if definition.is_async else Task
            return kind(definition, self.database, self.registry)

        return decorate if function is None else decorate(function)

    def _keys(self) -> KeyRing:
        return key_ring(self.settings.encryption_keys)

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
        """Run a function or task on a schedule: `@app.schedule(Cron("30 9 * * 1-5", tz="Europe/Riga"))`.

        A worker writes the schedule when it starts, and disables schedules that were removed from the code. `key`: the
        task's name by default. `arguments`: the arguments of the job. `options`: as in `app.schedules.new`.
        """

        def decorate(decorated: Any) -> Any:
            task = decorated if isinstance(decorated, Task) else self.task(decorated)
            job = task.job(**(arguments or {}))
            self.schedules.declare(self.schedules.new(key or task.name, job, when, **options))
            return task

        return cast(ScheduleDecorator, decorate)

    def cycle(self, when: When, /, *, key: str | None = None, **options: Unpack[ScheduleOptions]) -> ScheduleDecorator:
        """Run a function or task on a schedule that never overlaps itself: `@app.cycle(Every("2m"))`."""
        if options.get("overlap", "skip") != "skip":
            raise ConfigurationError("a cycle cannot overlap itself: use @app.schedule for another overlap policy")
        return self.schedule(when, key=key, **options)

    # Notifications

    @property
    def channels(self) -> Channels:
        """The notification channels by name."""
        return self.notifications.channels

    def event(
        self,
        name: str,
        payload: type[Payload],
        /,
        *,
        channels: Sequence[ChannelName | Chain],
        **options: Unpack[EventOptions],
    ) -> Event[Payload]:
        """Define a kind of event. `await event.anotify(…)` sends its notifications.

        channels: the channels that deliver it; `expo.then(sms, after="20m")` falls back to a second channel. category:
        the category that recipients set preferences for. critical: ignore preferences and quiet hours. opt_in: deliver
        only to recipients that subscribed. ttl: drop deliveries older than this. throttle: limit the deliveries to one
        recipient. digest: collect events for a while and send them in one message. listed: False hides it from the
        preference centre. variants={"short": 1, "long": 3}: versions of
        the message and their weights; each recipient always gets the same.
        """
        event = self.notifications.define(name, payload, channels, **options)
        self._register_notifications()
        return event

    def confirm_addresses(self, channel: ChannelName) -> Event[AddressConfirmation]:
        """Let recipients add e-mail addresses in the preference centre; each is confirmed by a message of this channel.

        Returns the event type of that message, which can have a template of its own: `payload.url` is the link.
        """
        event = self.notifications.define_confirmation(channel)
        self._register_notifications()
        return event

    def _register_notifications(self) -> None:
        """Register the tasks that send notifications, once, and schedule the sweep."""
        jobs = self.notifications.jobs
        if self.notifications.tasks.register(self.registry, jobs.queue):
            sweep = jobs.sweep()
            # One schedule for each queue: a sweep finds lost jobs of its own service.
            key = sweep.task if jobs.queue == QUEUE else f"{sweep.task}.{jobs.queue}"
            self.schedules.declare(self.schedules.new(key, sweep, Every("1m"), overlap="skip"))

    # Enqueue

    def new_job(self, task: str, arguments: bytes, options: JobOptions | None = None) -> NewJob:
        """Return a job for a registered task, from its name and JSON arguments, with the usual checks."""
        definition = self.registry.find(task)
        raw = definition.arguments.encode_json(arguments, self.settings.arguments_limit)
        chosen = options or JobOptions()
        priority = definition.priority if chosen.priority is None else chosen.priority
        checked = replace(chosen, queue=chosen.queue or definition.queue, priority=priority).checked()
        rules = self.registry.rules(definition, checked.queue or definition.queue)
        keys = keys_of(definition, rules, checked, raw) if rules else None
        return NewJob(task, raw, checked, keys, requires=requirements_of(definition))

    def worker(self, queues: Mapping[str, int] | None = None, **options: Any) -> Worker:
        """Return a worker for this process. `await worker.run()` works until `worker.stop()`."""
        self.archive.register()
        return Worker(
            self.database,
            self._registry_for_worker(),
            queues or self.default_queues(),
            service=self.service,
            declare_more=self._declare_notifications,
            on_close=self.notifications.close,
            **options,
        )

    def _registry_for_worker(self) -> Registry:
        """Return the registry. Unless it is empty, add the tasks of alerts and bulk operations first."""
        if len(self.alerts.register(self.registry)):
            bulk_task.register(self.registry, self.database, self._bulk_changes)
        return self.registry

    def _bulk_changes(self) -> Mapping[str, Change]:
        from sereno.bulk.operations import changes  # noqa: PLC0415 - slow to import, and few processes need it

        return changes(partial(self.notifications.requeue_operation, only_known=True))

    def _declare_notifications(self) -> Operation[None]:
        yield from self.notifications.declare()
        yield from self.alerts.declare()

    def scheduler(self) -> Scheduler | None:
        """Return a scheduler with its alert watcher; None where the settings turn it off."""
        return monitored_scheduler(self.database.url, self.settings) if self.settings.scheduler else None

    def declare(self) -> None:
        """Write the tasks, limits and schedules of the code to the database, as a worker does when it starts.

        Limits are written first, so that they already apply to the first job of a schedule.
        """
        self.database.run(declare_code(self.registry, self.service))
        self.schedules.synchronise()

    async def adeclare(self) -> None:
        """`declare` for async code."""
        await self.database.arun(declare_code(self.registry, self.service))
        await self.schedules.asynchronise()

    @contextlib.asynccontextmanager
    async def working(self, queues: Mapping[str, int] | None = None) -> AsyncIterator[Worker]:
        """Run a worker in this event loop: `async with app.working(): …`. It drains when the block ends."""
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
                task.result()  # the worker failed to start: raise its error here
            yield worker
        finally:
            registered.cancel()
            if scheduler is not None:
                await scheduler.stop()
            worker.stop()
            await task

    def default_queues(self) -> dict[str, int]:
        """Return the slots of each queue: the setting `queues`, or `concurrency` for `default` and every task queue."""
        if self.settings.queues:
            return {name: slots or self.settings.concurrency for name, slots in self.settings.queues.items()}
        return dict.fromkeys([*self.registry.queues, "default"], self.settings.concurrency)

    # Schema

    def migrate(self) -> list[Migration]:
        """Bring the schema up to date and return the migrations that were applied."""
        with connect(self.database.url, self.settings, "migrate") as connection:
            applied = migrate(connection, self.settings.schema)
            if applied and (prefix := roles.prefix_of(connection, self.settings.schema)):
                # New tables must belong to the owner role, and each login role needs its privileges on them.
                roles.create(connection, self.settings.schema, prefix)
            return applied

    async def amigrate(self) -> list[Migration]:
        """`migrate` for async code."""
        return await asyncio.to_thread(self.migrate)

    def check_schema(self) -> None:
        """Raise SchemaError if the schema is missing or too old."""
        with connect(self.database.url, self.settings, "check") as connection:
            check(connection, self.settings.schema)

    # Close

    def close(self) -> None:
        """Close the connections, and stop the embedded PostgreSQL if this process is its last user."""
        self.publisher.close()
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


def module_name(names: Mapping[str, Any]) -> str:
    """Return the name of the module that creates an application; for a script, the name of its file."""
    module = str(names.get("__name__", "app"))
    return Path(str(names.get("__file__", "app"))).stem if module == "__main__" else module
