"""deliveries ──▶ messages: claims a batch, commits it as `sending`, gives it to its channel, and records the outcomes.

A message whose outcome is not recorded would be sent again, so an error here may affect at most one delivery.
"""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import msgspec
import psycopg

from sereno.channels.contract import IN_APP, Channel, Exchange, Message
from sereno.channels.outcome import Down, Failed, Outcome
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.errors import UnknownEvent
from sereno.jobs import transitions
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.channel_call import call_channel
from sereno.notifications.deliveries.exchanges import Exchanges
from sereno.notifications.deliveries.outcomes import DeliveryMovedOn, OutcomeRecorder
from sereno.notifications.deliveries.send_jobs import SendJobs
from sereno.notifications.deliveries.store import Batch, ClaimedDelivery, ClaimedEvent
from sereno.notifications.deliveries.transition import Transition
from sereno.notifications.event import Content
from sereno.notifications.recipients.message_links import NO_LINKS, MessageLinker, MessageLinks
from sereno.notifications.templates.rendering import TemplateRenderer
from sereno.telemetry import tracing

# Seconds for which a job continues with further batches on a channel without a rate; then other jobs get a slot.
TURN_SECONDS = 2.0
# Batches of one claim of a fast channel: a third of the time that PostgreSQL takes for one batch is per statement.
MOST_BATCHES = 4
# Seconds that a call of a fast channel takes. On others, a job claims one batch and records its outcomes at once: few
# deliveries are `sending` when a provider stops responding.
FAST_CALL = 0.1


class DeliverySender:
    """Sends due deliveries."""

    def __init__(
        self,
        database: Database,
        channels: Mapping[str, Channel],
        exchanges: Exchanges,
        renderer: TemplateRenderer,
        recorder: OutcomeRecorder,
        send_jobs: SendJobs,
    ) -> None:
        self._database = database
        self._channels = channels
        self._exchanges = exchanges
        self._renderer = renderer
        self._recorder = recorder
        self._send_jobs = send_jobs
        self._links = MessageLinker(database)

    async def deliver(self, job: int, channel: str, account: str, slot: int) -> int:
        """Send the next batches of a channel. Return the number of claimed deliveries. `slot`: of the successor job."""
        await self._renderer.refresh()
        await self._recorder.settle_stranded(job, channel, account)
        known, total, until = self._channels.get(channel), 0, monotonic() + TURN_SECONDS
        one_batch, is_fast = self._send_jobs.batch_size(channel), False
        while True:
            # A rate counts jobs: each job sends one batch.
            is_last = known is None or known.rate is not None or monotonic() > until
            size = one_batch * (MOST_BATCHES if is_fast else 1)
            # Before anything is committed as sending: if the settings cannot be read, nothing was sent.
            exchange = None if known is None or channel == IN_APP else await self._exchanges.find(channel, account)
            batch = await self._database.arun(self._take(job, channel, account, size, slot if is_last else None))
            self._recorder.stats.count_unsent(batch.changes)
            if batch.deliveries:
                if channel == IN_APP:
                    await self._put_into_inbox(job, batch)
                else:
                    is_fast = await self._send(job, channel, account, batch, exchange)
            total += batch.examined
            if is_last or batch.examined < size:
                break
        if slot >= 0 and total < one_batch:
            # A job that finds the slot taken returns at once; the job that holds it checks for late deliveries.
            await self._database.arun(self._leave(channel, account))
        return total

    def _leave(self, channel: str, account: str) -> Operation[None]:
        if (yield from deliveries.any_due(channel, account, self._send_jobs.queue)):
            yield from transitions.enqueue([self._send_jobs.without_slot(channel, account)])

    def _take(self, job: int, channel: str, account: str, size: int, slot: int | None) -> Operation[Batch]:
        """Claim deliveries and enqueue the job for the next ones in one transaction: this worker may die while sending.

        A full claim means that there is more; deliveries in quiet hours get a job for the end of the quiet hours.
        """
        batch = yield from deliveries.take(channel, account, job, size, self._send_jobs.queue)
        tokens = [token for due_in in batch.held for token in self._send_jobs.to_send(channel, account, 1, due_in)]
        if slot is not None and batch.examined >= size:
            following = self._send_jobs.after(channel, account, slot)
            tokens += [] if following is None else [following]
        if tokens:
            yield from transitions.enqueue(tokens)
        return batch

    async def _send(self, job: int, channel: str, account: str, batch: Batch, exchange: Exchange | None) -> bool:
        """Send a claim, in one or more calls of the channel. Return whether the next claim may be a large one."""
        known, size, taken = self._channels.get(channel), self._send_jobs.batch_size(channel), batch.deliveries
        is_fast = known is not None and known.on_unknown == "retry"
        outcomes: dict[int, Outcome | DeliveryMovedOn] = {}
        first, down = 0, None
        for end in range(size, len(taken) + size, size):
            began, part = monotonic(), taken[end - size : end]
            if down is None:
                outcomes |= await self._call(channel, part, batch, exchange)
                down = next((outcome for outcome in outcomes.values() if isinstance(outcome, Down)), None)
            else:
                # The channel does not work, and is paused when this is recorded.
                outcomes |= dict.fromkeys([each.id for each in part], down)
            is_fast, is_last = is_fast and monotonic() - began < FAST_CALL, end >= len(taken)
            if is_last or not is_fast:
                await self._recorder.record(job, channel, account, batch, taken[first:end], outcomes, last=is_last)
                first, outcomes = end, {}
        return is_fast

    async def _call(
        self, channel: str, taken: Sequence[ClaimedDelivery], batch: Batch, exchange: Exchange | None
    ) -> dict[int, Outcome | DeliveryMovedOn]:
        """Send as many deliveries as one call of the channel takes, and return their outcomes."""
        known = self._channels.get(channel)
        messages: list[Message] = []
        outcomes: dict[int, Outcome | DeliveryMovedOn] = {}
        payloads: dict[int, dict[str, Any]] = {}
        for each in taken:
            made = self._message(channel, each, batch.events, payloads) if known is not None else DeliveryMovedOn()
            if isinstance(made, Message):
                messages.append(made)
            else:
                outcomes[each.id] = made
        if known is not None and messages:
            results: Sequence[Outcome] = [Down("no_account", "the account has no settings")] * len(messages)
            if exchange is not None:
                results = await call_channel(known, messages, exchange, batch.traces)
            outcomes |= zip([message.delivery for message in messages], results, strict=True)
        return outcomes

    async def _put_into_inbox(self, job: int, batch: Batch) -> None:
        made = {
            taken.id: self._content(IN_APP, taken, batch.events[taken.event_id], NO_LINKS) for taken in batch.deliveries
        }
        outcomes = {number: outcome for number, outcome in made.items() if not isinstance(outcome, Content)}
        bad = [taken for taken in batch.deliveries if taken.id in outcomes]
        good = [
            _inbox_row(taken, batch.events[taken.event_id], made[taken.id])
            for taken in batch.deliveries
            if taken.id not in outcomes
        ]
        try:
            if good:
                with tracing.delivering(IN_APP, batch.traces, len(good)) as ended:
                    await self._put(batch, good, last=not bad)
                    ended(())
        except (psycopg.DataError, psycopg.IntegrityError):
            # One row cannot be stored, or its recipient was just deleted: store each separately.
            for message in good:
                try:
                    await self._put(batch, [message], last=False)
                except (psycopg.DataError, psycopg.IntegrityError) as error:
                    outcomes[message["id"]] = Failed("unstorable", type(error).__name__)
            bad = [taken for taken in batch.deliveries if taken.id in outcomes]
        if bad:
            await self._recorder.record(job, IN_APP, "", batch, bad, outcomes)

    async def _put(self, batch: Batch, rows: Sequence[dict[str, Any]], *, last: bool) -> None:
        put = await self._database.arun(deliveries.put_into_inbox(batch.batches, rows, last=last))
        tenants = {taken.id: taken.tenant or "" for taken in batch.deliveries}
        # If another job settled some of them, it is not known which; the statistics tolerate that.
        done = [Transition(id=row["id"], state="delivered") for row in rows[:put]]
        kinds = {row["id"]: (row["event"], tenants[row["id"]]) for row in rows[:put]}
        self._recorder.stats.count_outcomes(IN_APP, "", done, kinds)

    def _message(
        self,
        channel: str,
        taken: ClaimedDelivery,
        events: Mapping[int, ClaimedEvent],
        payloads: dict[int, dict[str, Any]],
    ) -> Message | Failed | DeliveryMovedOn:
        event = events[taken.event_id]
        links = self._links.of(channel, taken, event)
        made = self._content(channel, taken, event, links)
        if not isinstance(made, Content):
            return made
        if event.id not in payloads:
            payloads[event.id] = msgspec.json.decode(event.payload)
        return Message(
            delivery=taken.id,
            key=f"sereno-{taken.id}",
            address=taken.address or "",
            keys=taken.keys or {},
            title=made.title,
            body=made.body,
            html=made.html,
            data=payloads[event.id],
            options=made.options,
            event=event.type,
            recipient=taken.recipient,
            tenant=taken.tenant,
            locale=taken.locale,
            attempt=taken.attempt,
            unsubscribe_url=links.unsubscribe_url,
            preferences_url=links.preferences_url,
        )

    def _content(
        self, channel: str, taken: ClaimedDelivery, event: ClaimedEvent, links: MessageLinks
    ) -> Content | Failed | DeliveryMovedOn:
        """Render; a template is user code: what it raises or returns wrongly fails this delivery only."""
        try:
            made = self._renderer.render(channel, taken, event, links)
        except UnknownEvent:
            return DeliveryMovedOn()
        except Exception as error:  # noqa: BLE001 - whatever a template raises is an outcome
            return Failed("template", f"{type(error).__name__}: {error}"[:300])
        if not (isinstance(made, Content) and isinstance(made.title, str) and isinstance(made.body, str)):
            return Failed("template", f"it returned {type(made).__name__}, not Content with a title and a body")
        if not (isinstance(made.html, str | None) and isinstance(made.options, Mapping)):
            return Failed("template", "it returned Content whose html is no string or whose options are no mapping")
        return Content(storable(made.title), storable(made.body), made.html and storable(made.html), made.options)


def storable(text: str) -> str:
    """Return the text as PostgreSQL accepts it."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\x00", "")


def _inbox_row(taken: ClaimedDelivery, event: ClaimedEvent, content: Any) -> dict[str, Any]:
    return {
        "id": taken.id,
        "attempt": taken.attempt,
        "recipient": taken.recipient_id,
        "event": event.type,
        "title": content.title,
        "body": content.body,
        "data": event.payload,
    }
