"""Deliveries: taken in batches, and what became of each."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, array, queries
from sereno.notifications.deliveries.stats import Change
from sereno.notifications.deliveries.transition import Transition

_sql = queries("notifications/deliveries/store")
# So many batches of the dead are settled at once.
MOST_STRANDED = 100
_ids = msgspec.json.Decoder(list[int])


class ClaimedDelivery(msgspec.Struct, array_like=True, gc=False):
    """A delivery that is being sent; the field order is that of the statement."""

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
    # Seconds since it was made.
    age: float
    digest: str | None = None
    # Payloads of all that this one tells of, the oldest first.
    gathered: list[msgspec.Raw] = []


class ClaimedEvent(msgspec.Struct, array_like=True, gc=False):
    """What a delivery tells of; the field order is that of the statement."""

    id: int
    type: str
    payload: msgspec.Raw
    category: str | None
    critical: bool


class Batch(NamedTuple):
    """Deliveries that are being sent, and their events.

    `batches`: the right to say what became of them. `looked_at`: also those that are not sent after all. `held`: in how
    many seconds those are due that fell into quiet hours. `changes`: what became of those, for the figures.
    """

    deliveries: list[ClaimedDelivery]
    events: dict[int, ClaimedEvent]
    batches: list[int]
    looked_at: int
    held: list[float]
    changes: list[Change]


class RecordedOutcome(NamedTuple):
    """Those that were written, and when, by the only clock that counts."""

    ids: set[int]
    now: float


class StrandedDelivery(msgspec.Struct, array_like=True):
    """A batch that somebody began to send: its deliveries, and how often nobody knew what became of each.

    `kinds`: the event and tenant of each.
    """

    batch: int
    deliveries: list[tuple[int, int]]
    kinds: list[tuple[str | None, str]]


_taken = msgspec.json.Decoder(list[ClaimedDelivery])
_events = msgspec.json.Decoder(list[ClaimedEvent])
_delays = msgspec.json.Decoder(list[float])
_stranded = msgspec.json.Decoder(list[StrandedDelivery])
_changes = msgspec.json.Decoder(list[Change])
_carriers = msgspec.json.Decoder(list[tuple[int, list[msgspec.Raw] | None]])


def take(channel: str, account: str, job: int, most: int) -> Operation[Batch]:
    """The next ones of a channel become `sending`, by this job."""
    found = yield from take_batches("send", channel, account, most, job=job)
    ids = [delivery for _, deliveries in found for delivery in deliveries]
    if not found:
        return Batch([], {}, [], 0, [], [])
    rows = yield Statement(_sql["take"], {"channel": channel, "account": account, "job": job, "ids": array(ids)})
    taken, events, held = _taken.decode(rows[0][0]), _events.decode(rows[0][1]), _delays.decode(rows[0][2])
    batches, changes = [batch for batch, _ in found], _changes.decode(rows[0][3])
    if any(each.digest is not None for each in taken):
        taken, told = yield from _gathered(job, taken)
        changes += told
    if not taken:
        yield from end(batches)
    return Batch(taken, {event.id: event for event in events}, batches, len(ids), held, changes)


def take_batches(
    purpose: Literal["send", "ask"], channel: str, account: str, most: int, *, job: int = 0, again: float | None = None
) -> Operation[list[tuple[int, list[int]]]]:
    """Batches with so many deliveries at most: they are the job's, or due again in so many seconds."""
    values = {"purpose": purpose, "channel": channel, "account": account, "job": job, "most": most, "again": again}
    return [(batch, ids) for batch, ids in (yield Statement(_sql["take_batches"], values))]


def end(batches: Sequence[int]) -> Operation[None]:
    """Nothing of them is left to be done."""
    yield Statement(_sql["end"], {"batches": list(batches)})


def _gathered(job: int, taken: Sequence[ClaimedDelivery]) -> Operation[tuple[list[ClaimedDelivery], list[Change]]]:
    """One for each message: who belongs into it comes along, and is done with."""
    ids = [each.id for each in taken if each.digest is not None]
    rows = yield Statement(_sql["gather"], {"ids": ids, "job": job})
    carriers = dict(_carriers.decode(rows[0][0]))
    for each in taken:
        each.gathered = carriers.get(each.id) or []
    left = [each for each in taken if each.digest is None or each.id in carriers]
    return left, _changes.decode(rows[0][1])


def any_due(channel: str, account: str) -> Operation[bool]:
    """Whether something waits to be sent now, by a channel that works."""
    return bool((yield Statement(_sql["any_due"], {"channel": channel, "account": account}))[0][0])


def stranded(channel: str, account: str, job: int) -> Operation[list[StrandedDelivery]]:
    """What somebody began to send and was not heard of again, MOST_STRANDED batches at most."""
    values = {"channel": channel, "account": account, "job": job, "most": MOST_STRANDED}
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
    """Write what became of them; answers those that were ours to say.

    `last`: nothing of the batches is left. `named`: the provider tells by itself what became of its messages, by their
    names. `receipts_for`: for so many seconds it can be asked.
    """
    values = {"outcomes": msgspec.json.encode(transitions).decode(), "job": job, "batches": list(batches), "last": last}
    rows = yield Statement(_sql["record"], {**values, "named": named, "receipts_for": receipts_for})
    return RecordedOutcome(set(_ids.decode(rows[0][0])), rows[0][1])


def put_into_inbox(
    batches: Sequence[int], messages: Sequence[Mapping[str, Any]], *, last: bool = True
) -> Operation[int]:
    values = {"messages": encoder.encode(messages).decode(), "batches": list(batches), "last": last}
    rows = yield Statement(_sql["put_into_inbox"], values)
    return int(rows[0][0])


def pause_channel(channel: str, account: str, reason: str) -> Operation[bool]:
    """True if it was not paused already."""
    rows = yield Statement(_sql["pause_channel"], {"channel": channel, "account": account, "reason": reason})
    return bool(rows)


def resume_channel(channel: str, account: str | None = None) -> Operation[list[str]]:
    rows = yield Statement(_sql["resume_channel"], {"channel": channel, "account": account})
    return [row[0] for row in rows]


def account_settings(channel: str, tenant: str) -> Operation[dict[str, Any]]:
    rows = yield Statement(_sql["account"], {"channel": channel, "tenant": tenant})
    return msgspec.json.decode(rows[0][0], type=dict[str, Any]) if rows else {}


def neglected() -> Operation[list[tuple[str, str]]]:
    """Channels and accounts with something to send that nobody sends."""
    return [(channel, account) for channel, account in (yield Statement(_sql["neglected"]))]


def waiting_accounts(channel: str) -> Operation[list[str]]:
    """Those with something to send on a channel."""
    return [row[0] for row in (yield Statement(_sql["waiting_accounts"], {"channel": channel}))]


def requeue(ids: Collection[int]) -> Operation[list[tuple[int, str, str]]]:
    """Back to work; answers id, channel and account of those that were."""
    rows = yield Statement(_sql["requeue"], {"ids": sorted(ids)})
    return msgspec.json.decode(rows[0][0], type=list[tuple[int, str, str]])
