"""`app.event` and `app.channels`: the event types and channels of an application, and what operators do with them.

Workers of the application send the notifications, with tasks of sereno in the queue that the setting
`notifications_queue` names: `notifications` by default.
"""

from collections.abc import Sequence
from typing import Any, Unpack

from sereno.channels.contract import Callback, Chain
from sereno.channels.registry import Channels
from sereno.database.client import DatabaseClient
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.jobs import transitions
from sereno.jobs.task import Registry
from sereno.notifications import event_types
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.exchanges import Exchanges
from sereno.notifications.deliveries.outcomes import OutcomeRecorder
from sereno.notifications.deliveries.receipts import ReceiptCollector
from sereno.notifications.deliveries.send_jobs import MOST_TOKENS, SendJobs
from sereno.notifications.deliveries.sender import DeliverySender
from sereno.notifications.deliveries.stats_writer import DeliveryStatsWriter
from sereno.notifications.event import EventDefinition, EventOptions
from sereno.notifications.event_handle import ChannelName, Event, channel_name
from sereno.notifications.fan_out import FanOut
from sereno.notifications.jobs import NotificationJobs
from sereno.notifications.recipients.address_confirmation import (
    CHANNEL,
    EVENT,
    LIFE,
    AddressConfirmation,
    confirmation_content,
)
from sereno.notifications.sweeper import Sweeper
from sereno.notifications.tasks import NotificationTasks
from sereno.notifications.templates.rendering import TemplateRenderer


class Notifications(DatabaseClient):
    """The events and channels of one application, and the parts that send notifications."""

    def __init__(self, database: Database, registry: Registry) -> None:
        super().__init__(database)
        self.channels = Channels(database)
        self.definitions: dict[str, EventDefinition] = {}
        # Payload types by event name, for the lint of templates.
        self.payloads: dict[str, Any] = {}
        known = self.channels.known
        self.jobs = NotificationJobs(registry, database.settings.notifications_queue)
        self._send_jobs = SendJobs(known, self.jobs)
        self._stats = DeliveryStatsWriter(database)
        self.exchanges = Exchanges(database, self.channels.accounts)
        self.renderer = TemplateRenderer(database, self.definitions)
        recorder = OutcomeRecorder(database, known, self._stats, self._send_jobs, self.jobs)
        self.fanout = FanOut(database, self.definitions, self._stats, self._send_jobs, self.jobs)
        self.sender = DeliverySender(database, known, self.exchanges, self.renderer, recorder, self._send_jobs)
        self.receipts = ReceiptCollector(database, self.channels, self.exchanges, recorder, self._send_jobs, self.jobs)
        self.sweeper = Sweeper(database, self.receipts, self._send_jobs, self.jobs)
        self.tasks = NotificationTasks(self.fanout, self.sender, self.receipts, self.sweeper)

    def declare(self) -> Operation[None]:
        """Store the event types that the code declares. A worker calls this when it starts."""
        yield from event_types.declare(self.definitions.values(), self.channels.resolve, self.jobs.queue)

    def define(
        self, name: str, payload: Any, channels: Sequence[ChannelName | Chain], **options: Unpack[EventOptions]
    ) -> Event[Any]:
        """Declare an event type. Channel instances in `channels` are registered."""
        if name in self.definitions:
            raise ConfigurationError(f"there are two events named {name}: give one of them another name")
        chains = [channel if isinstance(channel, Chain) else Chain([channel]) for channel in channels]
        for channel in (link for chain in chains for link in chain.links):
            self.channels.register(channel)
        definition = EventDefinition(
            name,
            payload,
            channels=[channel_name(chain.links[0]) for chain in chains],
            steps=[step for chain in chains for step in chain.steps],
            **options,
        )
        self.definitions[name], self.payloads[name] = definition, payload
        return self.event(name)

    def define_confirmation(self, channel: ChannelName) -> Event[AddressConfirmation]:
        """Declare the event type whose messages confirm addresses that recipients add."""
        if (name := channel_name(channel)) != CHANNEL:
            raise ConfigurationError(
                f"recipients can add addresses of the channel {CHANNEL}, not of {name}: your code adds those itself"
            )
        event = self.define(EVENT, AddressConfirmation, [channel], critical=True, listed=False, ttl=LIFE)
        event.template()(confirmation_content)
        return event

    def event(self, name: str) -> Event[Any]:
        """Return an event type that the code declares."""
        return Event(self.definitions[name], self._database, self.channels, self.jobs)

    def requeue(self, ids: Sequence[int], *, conn: Any = None) -> list[int]:
        """Send again deliveries that ended without arriving. Return the ids of the requeued deliveries."""
        return self._run(self.requeue_operation(ids), conn)

    async def arequeue(self, ids: Sequence[int], *, conn: Any = None) -> list[int]:
        return await self._arun(self.requeue_operation(ids), conn)

    def requeue_operation(self, ids: Sequence[int], *, only_known: bool = False) -> Operation[list[int]]:
        """`only_known`: skip channels of other applications; the sweep of that application finds their deliveries."""
        back = yield from deliveries.requeue(ids)
        for channel, account, queue in sorted({(channel, account, queue) for _, channel, account, queue in back}):
            if (channel in self.channels.known and queue == self.jobs.queue) or not only_known:
                yield from transitions.enqueue([self._send_jobs.in_queue(queue, channel, account)])
        return [delivery for delivery, *_ in back]

    def resume(self, channel: str, account: str | None = None, *, conn: Any = None) -> list[str]:
        """Resume a paused channel and send its pending deliveries. Return the accounts that were paused."""
        return self._run(self._resume(channel, account), conn)

    async def aresume(self, channel: str, account: str | None = None, *, conn: Any = None) -> list[str]:
        return await self._arun(self._resume(channel, account), conn)

    def _resume(self, channel: str, account: str | None) -> Operation[list[str]]:
        accounts = yield from deliveries.resume_channel(channel, account)
        # A pause of the whole channel also blocked the accounts with their own credentials.
        waiting = (yield from deliveries.waiting_accounts(channel)) if accounts else []
        for each, queue in waiting:
            jobs = [self._send_jobs.in_queue(queue, channel, each)]
            if queue == self.jobs.queue:
                jobs = list(self._send_jobs.to_send(channel, each, MOST_TOKENS + 1))
            yield from transitions.enqueue(jobs)
        return accounts

    async def callback(self, channel: str, callback: Callback, account: str = "") -> int:
        """Apply the receipts of a provider's webhook call. Return the number of deliveries that changed."""
        return await self.receipts.callback(channel, callback, account)

    async def close(self) -> None:
        """Write the statistics, and close the connections to providers of this event loop."""
        await self._stats.flush()
        await self.exchanges.close()
