"""`app.event` and `app.channels`: declare events and channels, and notify recipients.

Workers of the application send the notifications, with tasks of sereno in the queue `notifications`.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from sereno.channels.contract import Callback, Chain, Channel, EscalationStep
from sereno.channels.registry import Channels
from sereno.database.caller_connection import arun_borrowed, run_borrowed
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidArguments, UnknownEvent
from sereno.jobs import transitions as jobs_store
from sereno.jobs.job import NewJob, check_date
from sereno.jobs.retry import Backoff
from sereno.jobs.task_handle import Task
from sereno.notifications import event_types, events
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.outcomes import OutcomeRecorder
from sereno.notifications.deliveries.send_jobs import LATER, MOST_TOKENS, SendJobs
from sereno.notifications.deliveries.sender import DeliverySender
from sereno.notifications.deliveries.store import ClaimedDelivery, ClaimedEvent
from sereno.notifications.event import Content, Digest, DigestTemplate, EventDefinition, Template, Throttle
from sereno.notifications.events import NewEvent, Status
from sereno.notifications.fan_out import FanOut
from sereno.notifications.payload_check import can_be_told
from sereno.notifications.templates.rendering import TemplateRenderer
from sereno.text import check_text
from sereno.worker.context import Context

P = TypeVar("P")
T = TypeVar("T")

QUEUE = "notifications"
# Recipients that one call can name. A larger audience is expressed with preferences.
MOST_NAMED = 10_000

ChannelName = Channel | str


class Event(Generic[P]):
    """One event type, created by `app.event`."""

    def __init__(self, definition: EventDefinition, notifications: "Notifications") -> None:
        self._definition = definition
        self._notifications = notifications

    @property
    def name(self) -> str:
        return self._definition.name

    def __repr__(self) -> str:
        return f"<Event {self.name}>"

    def template(self, channel: ChannelName | None = None) -> Callable[[Template], Template]:
        """Register a template, `(payload, recipient) -> Content`, for one channel or for channels without their own."""
        name = None if channel is None else _name(channel)

        def decorate(function: Template) -> Template:
            self._definition.templates[name] = function
            return function

        return decorate

    def digest_template(self, channel: ChannelName | None = None) -> Callable[[DigestTemplate], DigestTemplate]:
        """Register the template of a digest: `(payloads, recipient) -> Content`."""
        name = None if channel is None else _name(channel)

        def decorate(function: DigestTemplate) -> DigestTemplate:
            self._definition.digest_templates[name] = function
            return function

        return decorate

    def status(self, subject: str | None = None, key: str | None = None, *, tenant: str | None = None) -> Status | None:
        """Return the status (pending, sent or overdue) of the event with this subject and key, or None."""
        return self._notifications.run(events.status(self.name, subject, key, tenant))

    async def astatus(
        self, subject: str | None = None, key: str | None = None, *, tenant: str | None = None
    ) -> Status | None:
        return await self._notifications.arun(events.status(self.name, subject, key, tenant))

    def notify(
        self,
        payload: P,
        *,
        to: str | Sequence[str] | None = None,
        subject: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        trace: str | None = None,
        conn: Any = None,
    ) -> int:
        """Store the event, once per (subject, key), in the transaction of `conn` if given. Return its id.

        `to`: keys of recipients; without it, all whose preferences match. `at`: earliest time to send. `ttl`:
        a delivery not sent within it expires. `trace`: links the event to its cause, such as `ctx.trace`.
        """
        event = self._new(payload, to, subject, key, tenant, at, ttl, trace)
        return self._notifications.run(self._notifications.write(event), conn)

    async def anotify(
        self,
        payload: P,
        *,
        to: str | Sequence[str] | None = None,
        subject: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        trace: str | None = None,
        conn: Any = None,
    ) -> int:
        """`notify` for async code."""
        event = self._new(payload, to, subject, key, tenant, at, ttl, trace)
        return await self._notifications.arun(self._notifications.write(event), conn)

    def _new(
        self,
        payload: P,
        to: str | Sequence[str] | None,
        subject: str | None,
        key: str | None,
        tenant: str | None,
        at: datetime | None,
        ttl: Duration | None,
        trace: str | None,
    ) -> NewEvent:
        definition = self._definition
        for name, value in (("subject", subject), ("key", key), ("tenant", tenant), ("trace", trace)):
            check_text(name, value)
        check_date("at", at)
        channels, note = self._notifications.channels.resolve(definition.channels)
        raw = definition.encode(payload)
        gathered, throttle, digest = definition.digest_key(raw), definition.throttle, definition.digest
        return NewEvent(
            type=definition.name,
            payload=raw,
            channels=channels,
            tenant=tenant,
            subject=subject,
            # Without a key and a subject, a random key makes the event unique.
            key=key if key is not None or subject is not None else uuid.uuid4().hex,
            category=definition.category,
            audience=_audience(to),
            critical=definition.critical,
            opt_in=definition.opt_in,
            due_at=at,
            ttl=definition.ttl if ttl is None else seconds(ttl),
            note=note,
            steps=[msgspec.structs.asdict(step) for step in self._steps()],
            throttle=(throttle.most, seconds(throttle.per)) if throttle else None,
            digest=(gathered, seconds(digest.window)) if gathered and digest else None,
            trace=trace,
        )

    def _steps(self) -> Iterator[EscalationStep]:
        """Yield the escalation steps; an inactive channel is skipped and its delay is added to the next step."""
        passed: dict[str, EscalationStep] = {}
        for step in self._definition.steps:
            before = passed.get(step.first)
            here = (
                step
                if before is None
                else msgspec.structs.replace(step, first=before.first, after=before.after + step.after)
            )
            if self._notifications.channels.is_active(step.second):
                yield here
            else:
                passed[step.second] = here


class Notifications:
    """The events and channels of one application, and the tasks that send them."""

    def __init__(
        self,
        database: Database,
        make_task: Callable[..., Any],
        each_minute: Callable[[NewJob], None],
        active: Callable[[], Sequence[str] | None],
    ) -> None:
        self._database = database
        self._make_task = make_task
        self._each_minute = each_minute
        self.channels = Channels(active)
        self.definitions: dict[str, EventDefinition] = {}
        # Payload types by event name, for the lint of templates.
        self.payloads: dict[str, Any] = {}
        self.renderer = TemplateRenderer(database)
        self._tasks: dict[str, Task[..., Any]] = {}
        known, accounts = self.channels.known, self.channels.accounts
        self._send_jobs = send_jobs = SendJobs(known, lambda: self._task("deliver"), lambda: self._task("receipts"))
        recorder = OutcomeRecorder(database, known, send_jobs)
        self.dispatch = DeliverySender(database, known, accounts, self._render, recorder, send_jobs)
        self.fanout = FanOut(database, known, self.dispatch, recorder, send_jobs, self._escalation, self._fan_out_again)

    def declare(self) -> Operation[None]:
        """Store the event types that the code declares. A worker calls this when it starts."""
        yield from event_types.declare(self.definitions.values(), self.channels.resolve)

    def define(
        self,
        name: str,
        payload: Any,
        *,
        channels: Sequence[ChannelName | Chain],
        category: str | None,
        critical: bool,
        opt_in: bool,
        ttl: Duration | None,
        throttle: Throttle | None,
        digest: Digest | None,
    ) -> Event[Any]:
        """Declare an event type. Channel instances in `channels` are registered."""
        if name in self.definitions:
            raise ConfigurationError(f"there are two events named {name}: give one of them another name")
        chains = [channel if isinstance(channel, Chain) else Chain([channel]) for channel in channels]
        for channel in (link for chain in chains for link in chain.links):
            self.channels.know(channel)
        definition = EventDefinition(
            name,
            payload,
            channels=[_name(chain.links[0]) for chain in chains],
            steps=[step for chain in chains for step in chain.steps],
            throttle=throttle,
            digest=digest,
            category=category,
            critical=critical,
            opt_in=opt_in,
            ttl=None if ttl is None else seconds(ttl),
        )
        self.definitions[name], self.payloads[name] = definition, payload
        self._declare_tasks()
        return Event(definition, self)

    # Write

    def write(self, event: NewEvent) -> Operation[int]:
        """Store the event and its fan-out job in one transaction. Return the id of the event."""
        number, is_new = yield from events.notify(event)
        if is_new:
            fan_out = self._task("fan_out").using(run_at=event.due_at, tenant=event.tenant, trace=event.trace)
            yield from jobs_store.enqueue([fan_out.job(number)])
        return number

    def _escalation(self, event: int, due_in: float) -> Sequence[NewJob]:
        return [self._task("escalate").using(delay=due_in).job(event)]

    def requeue(self, ids: Sequence[int], *, conn: Any = None) -> list[int]:
        """Send again deliveries that ended without arriving. Return the ids of the requeued deliveries."""
        return self.run(self.requeue_operation(ids), conn)

    async def arequeue(self, ids: Sequence[int], *, conn: Any = None) -> list[int]:
        return await self.arun(self.requeue_operation(ids), conn)

    def requeue_operation(self, ids: Sequence[int], *, only_known: bool = False) -> Operation[list[int]]:
        """`only_known`: skip channels of other applications; the sweep of that application finds their deliveries."""
        back = yield from deliveries.requeue(ids)
        for channel, account in sorted({(channel, account) for _, channel, account in back}):
            if channel in self.channels.known or not only_known:
                yield from jobs_store.enqueue(self._send_jobs.to_send(channel, account))
        return [delivery for delivery, _, _ in back]

    def resume(self, channel: str, account: str | None = None, *, conn: Any = None) -> list[str]:
        """Resume a paused channel and send its pending deliveries. Return the accounts that were paused."""
        return self.run(self._resume(channel, account), conn)

    async def aresume(self, channel: str, account: str | None = None, *, conn: Any = None) -> list[str]:
        return await self.arun(self._resume(channel, account), conn)

    def _resume(self, channel: str, account: str | None) -> Operation[list[str]]:
        accounts = yield from deliveries.resume_channel(channel, account)
        # A pause of the whole channel also blocked the accounts with their own credentials.
        waiting = (yield from deliveries.waiting_accounts(channel)) if accounts else []
        for each in waiting:
            yield from jobs_store.enqueue(self._send_jobs.to_send(channel, each, MOST_TOKENS + 1))
        return accounts

    async def callback(self, channel: str, callback: Callback, account: str = "") -> int:
        """Apply the receipts of a provider's webhook call. Return the number of deliveries that changed."""
        settings = self.channels.accounts.get(channel, {})
        if account:
            settings = await self._database.arun(deliveries.account_settings(channel, account))
        return await self.fanout.received(channel, account, self.channels[channel].webhook(callback, settings))

    def run(self, operation: Operation[T], conn: Any = None) -> T:
        if conn is None:
            return self._database.run(operation)
        settings = self._database.settings
        return run_borrowed(conn, operation, settings.schema, notify=settings.notify)

    async def arun(self, operation: Operation[T], conn: Any = None) -> T:
        if conn is None:
            return await self._database.arun(operation)
        return await arun_borrowed(
            conn, operation, self._database.settings.schema, notify=self._database.settings.notify
        )

    # Tasks

    def _declare_tasks(self) -> None:
        if self._tasks:
            return
        fanout, dispatch, renderer = self.fanout, self.dispatch, self.renderer

        async def fan_out(event: int) -> None:
            if await can_be_told(self._database, self.definitions, event):
                await fanout.fan_out(event)

        async def escalate(event: int) -> None:
            await fanout.escalate(event)

        async def deliver(ctx: Context, channel: str, account: str, slot: int = LATER) -> None:
            await renderer.refresh()
            await dispatch.deliver(ctx.job_id, channel, account, slot)

        async def receipts(channel: str, account: str) -> None:
            await fanout.receipts(channel, account)

        async def sweep_notifications() -> None:
            await fanout.sweep()

        retry = Backoff(8)
        for function, timeout, history in (
            (fan_out, "2h", True),
            (escalate, "2h", False),
            (deliver, "10m", False),
            (receipts, "10m", False),
            (sweep_notifications, "10m", False),
        ):
            name = function.__name__
            decorate = self._make_task(
                name=f"sereno.{name}", queue=QUEUE, retry=retry, timeout=timeout, history=history
            )
            self._tasks[name] = decorate(function)
        self._each_minute(self._tasks["sweep_notifications"].job())

    def _task(self, name: str) -> Task[..., Any]:
        self._declare_tasks()
        return self._tasks[name]

    def _fan_out_again(self, event: int, tenant: str | None) -> Sequence[NewJob]:
        return [self._task("fan_out").using(tenant=tenant, unique_key=f"event {event}").job(event)]

    def _render(
        self, channel: str, taken: ClaimedDelivery, event: ClaimedEvent, unsubscribe_url: str | None
    ) -> Content:
        definition = self.definitions.get(event.type)
        if definition is None:
            raise UnknownEvent(f"no event {event.type} is declared in this worker's code")
        return self.renderer.said(definition, channel, taken, event, unsubscribe_url)


def _name(channel: ChannelName) -> str:
    return channel if isinstance(channel, str) else channel.name


def _audience(to: str | Sequence[str] | None) -> list[str] | None:
    if to is None:
        return None
    named = [to] if isinstance(to, str) else list(to)
    if not named:
        raise InvalidArguments("to=[]: the list of recipients is empty; omit `to` to notify all who want the event")
    if len(named) > MOST_NAMED:
        raise InvalidArguments(f"to: {len(named):,} recipients by name, at most {MOST_NAMED:,}; use preferences")
    for key in named:
        check_text("to", key)
    return sorted(set(named))
