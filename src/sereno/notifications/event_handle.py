"""The object that `app.event` returns: notifies recipients of one event type."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from sereno.channels.contract import Channel, EscalationStep
from sereno.channels.registry import Channels
from sereno.database.client import DatabaseClient
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import InvalidArguments
from sereno.jobs import transitions
from sereno.jobs.job import check_date
from sereno.notifications import events
from sereno.notifications.event import DigestTemplate, EventDefinition, Template
from sereno.notifications.events import EventStatus, NewEvent
from sereno.notifications.jobs import NotificationJobs
from sereno.telemetry import tracing
from sereno.text import check_text

P = TypeVar("P")

# Recipients that one call can name. A larger audience is expressed with a topic or preferences.
MOST_NAMED = 10_000
# `to="topic:tender:r42"`: the subscribers of tender:r42.
TOPIC = "topic:"

ChannelName = Channel | str


class Event(DatabaseClient, Generic[P]):
    """One event type, created by `app.event`."""

    def __init__(
        self, definition: EventDefinition, database: Database, channels: Channels, jobs: NotificationJobs
    ) -> None:
        super().__init__(database)
        self._definition = definition
        self._channels = channels
        self._jobs = jobs

    @property
    def name(self) -> str:
        return self._definition.name

    def __repr__(self) -> str:
        return f"<Event {self.name}>"

    def template(self, channel: ChannelName | None = None) -> Callable[[Template], Template]:
        """Register a template, `(payload, recipient) -> Content`, for one channel or for channels without their own."""
        name = None if channel is None else channel_name(channel)

        def decorate(function: Template) -> Template:
            self._definition.templates[name] = function
            return function

        return decorate

    def digest_template(self, channel: ChannelName | None = None) -> Callable[[DigestTemplate], DigestTemplate]:
        """Register the template of a digest: `(payloads, recipient) -> Content`."""
        name = None if channel is None else channel_name(channel)

        def decorate(function: DigestTemplate) -> DigestTemplate:
            self._definition.digest_templates[name] = function
            return function

        return decorate

    def status(
        self, subject: str | None = None, key: str | None = None, *, tenant: str | None = None
    ) -> EventStatus | None:
        """Return the status (pending, sent or overdue) of the event with this subject and key, or None."""
        return self._run(events.status(self.name, subject, key, tenant), None)

    async def astatus(
        self, subject: str | None = None, key: str | None = None, *, tenant: str | None = None
    ) -> EventStatus | None:
        return await self._arun(events.status(self.name, subject, key, tenant), None)

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

        `to`: keys of recipients, or one topic, `"topic:tender:r42"`; without it, all whose preferences match. `at`:
        earliest time to send. `ttl`: a delivery not sent within it expires. `trace`: links the event to its cause,
        such as `ctx.trace`.
        """
        with tracing.sending("notify", self.name):
            event = self._new(payload, to, subject, key, tenant, at, ttl, trace)
            return self._run(self._write(event), conn)

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
        with tracing.sending("notify", self.name):
            event = self._new(payload, to, subject, key, tenant, at, ttl, trace)
            return await self._arun(self._write(event), conn)

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
        channels, note = self._channels.resolve(definition.channels)
        raw = definition.encode(payload)
        audience, topic = _audience(to)
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
            audience=audience,
            topic=topic,
            critical=definition.critical,
            opt_in=definition.opt_in,
            due_at=at,
            ttl=definition.ttl if ttl is None else seconds(ttl),
            note=note,
            steps=[msgspec.structs.asdict(step) for step in self._steps()],
            throttle=(throttle.most, seconds(throttle.per)) if throttle else None,
            digest=(gathered, seconds(digest.window)) if gathered and digest else None,
            trace=trace if trace is not None else tracing.current(),
        )

    def _write(self, event: NewEvent) -> Operation[int]:
        """Store the event and its fan-out job in one transaction. Return the id of the event."""
        number, is_new = yield from events.notify(event)
        if is_new:
            yield from transitions.enqueue([self._jobs.fan_out(number, event.due_at, event.tenant, event.trace)])
        return number

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
            if self._channels.is_active(step.second):
                yield here
            else:
                passed[step.second] = here


def channel_name(channel: ChannelName) -> str:
    return channel if isinstance(channel, str) else channel.name


def _audience(to: str | Sequence[str] | None) -> tuple[list[str] | None, str | None]:
    """Return the keys of recipients, or the topic."""
    if to is None:
        return None, None
    named = [to] if isinstance(to, str) else list(to)
    if not named:
        raise InvalidArguments("to=[]: the list of recipients is empty; omit `to` to notify all who want the event")
    if len(named) > MOST_NAMED:
        raise InvalidArguments(f"to: {len(named):,} recipients by name, at most {MOST_NAMED:,}; use a topic")
    for key in named:
        check_text("to", key)
    topics = [key for key in named if key.startswith(TOPIC)]
    if not topics:
        return sorted(set(named)), None
    if len(named) > 1:
        raise InvalidArguments(f"to: {topics[0]!r:.60} stands alone, without other topics and recipients")
    topic = topics[0].removeprefix(TOPIC)
    check_text("topic", topic)
    return None, topic
