"""Claims deliveries in batches and stores their outcomes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, array, queries
from sereno.notifications.deliveries.stats import DeliveryChange
from sereno.notifications.deliveries.transition import Transition
from sereno.notifications.jobs import QUEUE

_sql = queries("notifications/deliveries/store")
_outcomes_sql = queries("notifications/deliveries/outcomes")
# Most stranded batches that are settled at once.
MOST_STRANDED = 100
# States of messages that the provider accepted.
ACCEPTED = ("sent", "delivered")
_ids = msgspec.json.Decoder(list[int])


class ClaimedDelivery(msgspec.Struct, array_like=True, gc=False):
    """A delivery that is being sent; field order as in the statement."""

    id: int
    event_id: int
    address_id: int | None
    address: str | None
    keys: dict[str, Any] | None
    recipient_id: int
    recipient: str
    locale: str | None
    tenant: str | None
    attempt: int
    # Seconds since it was created.
    age: float
    digest: str | None = None
    # Payloads of all deliveries in this message, oldest first.
    gathered: list[msgspec.Raw] = []


class ClaimedEvent(msgspec.Struct, array_like=True, gc=False):
    """The event of a claimed delivery; field order as in the statement."""

    id: int
    type: str
    payload: msgspec.Raw
    category: str | None
    critical: bool
    trace: str | None = None


class Batch(NamedTuple):
    """Deliveries that are being sent, and their events.

    `batches`: claimed batches; holding them is the right to record outcomes. `examined`: number of claimed deliveries,
    including those that are not sent after all. `held`: seconds until deliveries in quiet hours are due. `changes`: the
    deliveries that are not sent, for the statistics.
    """

    deliveries: list[ClaimedDelivery]
    events: dict[int, ClaimedEvent]
    batches: list[int]
    examined: int
    held: list[float]
    changes: list[DeliveryChange]

    @property
    def traces(self) -> list[str]:
        """The traces of the events."""
        return [event.trace for event in self.events.values() if event.trace is not None]


class RecordedOutcome(NamedTuple):
    """The ids of the recorded deliveries, and the time of the database."""

    ids: set[int]
    now: float


class StrandedDelivery(msgspec.Struct, array_like=True):
    """A batch whose sender was lost: its deliveries, each with its number of unknown outcomes.

    `kinds`: event type and tenant of each.
    """

    batch: int
    deliveries: list[tuple[int, int]]
    kinds: list[tuple[str | None, str]]


_taken = msgspec.json.Decoder(list[ClaimedDelivery])
_events = msgspec.json.Decoder(list[ClaimedEvent])
_delays = msgspec.json.Decoder(list[float])
_stranded = msgspec.json.Decoder(list[StrandedDelivery])
_changes = msgspec.json.Decoder(list[DeliveryChange])
_carriers = msgspec.json.Decoder(list[tuple[int, list[msgspec.Raw] | None]])


def take(channel: str, account: str, job: int, most: int, queue: str = QUEUE) -> Operation[Batch]:
    """Claim the next deliveries of a queue and channel for this job: they become `sending`."""
    found = yield from take_batches("send", channel, account, most, job=job, queue=queue)
    ids = [delivery for _, deliveries in found for delivery in deliveries]
    if not found:
        return Batch([], {}, [], 0, [], [])
    rows = yield Statement(_sql["take"], {"channel": channel, "account": account, "job": job, "ids": array(ids)})
    taken, events, unsent = _taken.decode(rows[0][0]), _events.decode(rows[0][1]), rows[0][2]
    batches, held, changes = [batch for batch, _ in found], [], []
    if unsent:
        place = {"queue": queue, "channel": channel, "account": account}
        rows = yield Statement(_sql["settle_unsent"], {**place, "ids": unsent})
        held, changes = _delays.decode(rows[0][0]), _changes.decode(rows[0][1])
    if any(each.digest is not None for each in taken):
        taken, collected = yield from _gathered(job, taken)
        changes += collected
    if not taken:
        yield from end(batches)
    return Batch(taken, {event.id: event for event in events}, batches, len(ids), held, changes)


def take_batches(
    purpose: Literal["send", "ask"],
    channel: str,
    account: str,
    most: int,
    *,
    job: int = 0,
    again: float | None = None,
    queue: str = QUEUE,
) -> Operation[list[tuple[int, list[int]]]]:
    """Claim batches with at most `most` deliveries: for the job, or due again after `again` seconds."""
    place = {"purpose": purpose, "queue": queue, "channel": channel, "account": account}
    rows = yield Statement(_sql["take_batches"], {**place, "job": job, "most": most, "again": again})
    return [(batch, ids) for batch, ids in rows]


def end(batches: Sequence[int]) -> Operation[None]:
    """Delete batches in which nothing is left to do."""
    yield Statement(_sql["end"], {"batches": list(batches)})


def _gathered(
    job: int, taken: Sequence[ClaimedDelivery]
) -> Operation[tuple[list[ClaimedDelivery], list[DeliveryChange]]]:
    """Return one delivery per digest message; the deliveries collected into it are completed."""
    ids = [each.id for each in taken if each.digest is not None]
    rows = yield Statement(_sql["gather"], {"ids": ids, "job": job})
    carriers = dict(_carriers.decode(rows[0][0]))
    for each in taken:
        each.gathered = carriers.get(each.id) or []
    left = [each for each in taken if each.digest is None or each.id in carriers]
    return left, _changes.decode(rows[0][1])


def any_due(channel: str, account: str, queue: str = QUEUE) -> Operation[bool]:
    """Return whether a delivery of a queue is due on a channel that is not paused."""
    rows = yield Statement(_sql["any_due"], {"queue": queue, "channel": channel, "account": account})
    return bool(rows[0][0])


def stranded(channel: str, account: str, job: int, queue: str = QUEUE) -> Operation[list[StrandedDelivery]]:
    """Return batches whose sender was lost, at most MOST_STRANDED."""
    values = {"queue": queue, "channel": channel, "account": account, "job": job, "most": MOST_STRANDED}
    rows = yield Statement(_sql["stranded"], values)
    return _stranded.decode(rows[0][0])


def record(
    job: int,
    batches: Sequence[int],
    transitions: Sequence[Transition],
    *,
    last: bool = True,
    named: bool = True,
    receipts_for: float = 0.0,
) -> Operation[RecordedOutcome]:
    """Store the outcomes. Return the ids of the deliveries that the job was still allowed to change.

    `last`: nothing of the batches is left. `named`: store provider ids, because the provider sends receipts to a
    webhook. `receipts_for`: seconds during which receipts can be requested.
    """
    values = {
        "outcomes": msgspec.json.encode(transitions).decode(),
        "job": job,
        "batches": array(batches),
        "last": last,
    }
    query = "record_accepted" if all(each.state in ACCEPTED for each in transitions) else "record"
    rows = yield Statement(_outcomes_sql[query], {**values, "named": named, "receipts_for": receipts_for})
    return RecordedOutcome(set(_ids.decode(rows[0][0])), rows[0][1])


def put_into_inbox(
    batches: Sequence[int], messages: Sequence[Mapping[str, Any]], *, last: bool = True
) -> Operation[int]:
    values = {"messages": encoder.encode(messages).decode(), "batches": array(batches), "last": last}
    rows = yield Statement(_outcomes_sql["put_into_inbox"], values)
    return int(rows[0][0])


def pause_channel(channel: str, account: str, reason: str) -> Operation[bool]:
    """Return True if it was not paused already."""
    rows = yield Statement(_sql["pause_channel"], {"channel": channel, "account": account, "reason": reason})
    return bool(rows)


def resume_channel(channel: str, account: str | None = None) -> Operation[list[str]]:
    rows = yield Statement(_sql["resume_channel"], {"channel": channel, "account": account})
    return [row[0] for row in rows]


def account_settings(channel: str, tenant: str) -> Operation[dict[str, Any]]:
    rows = yield Statement(_sql["account"], {"channel": channel, "tenant": tenant})
    return msgspec.json.decode(rows[0][0], type=dict[str, Any]) if rows else {}


def without_job(queue: str = QUEUE) -> Operation[list[tuple[str, str]]]:
    """Return channels and accounts with due deliveries of a queue that have no job."""
    return [(channel, account) for channel, account in (yield Statement(_sql["without_job"], {"queue": queue}))]


def waiting_accounts(channel: str) -> Operation[list[tuple[str, str]]]:
    """Return the accounts with pending deliveries on a channel, each with a queue."""
    return [(account, queue) for account, queue in (yield Statement(_sql["waiting_accounts"], {"channel": channel}))]


def requeue(ids: Collection[int]) -> Operation[list[tuple[int, str, str, str]]]:
    """Return deliveries to pending. Return id, channel, account and queue of those that changed."""
    rows = yield Statement(_sql["requeue"], {"ids": sorted(ids)})
    return msgspec.json.decode(rows[0][0], type=list[tuple[int, str, str, str]])
