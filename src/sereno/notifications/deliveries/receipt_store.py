"""Stores receipts: which ones are requested from providers, and what providers report."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from sereno.channels.outcome import Receipt
from sereno.database.statement import Operation, Statement, array, queries
from sereno.error_text import one_line
from sereno.notifications.deliveries.store import take_batches
from sereno.notifications.jobs import QUEUE
from sereno.telemetry.metrics import BUCKETS

_sql = queries("notifications/deliveries/receipt_store")

# Due batches that are examined before a request: more than the concurrent requests claim.
MOST_EXAMINED = 100
OUTCOMES = frozenset(get_args(get_type_hints(Receipt)["outcome"]))


class ReceiptRequest(NamedTuple):
    """A batch of deliveries whose receipts are requested, with the message ids of the provider."""

    batch: int
    deliveries: list[tuple[int, str]]


class ReceivedReceipt(msgspec.Struct, array_like=True):
    """A number of deliveries with one receipt outcome. `bucket`: index in BUCKETS of the time since sending."""

    event: str | None
    tenant: str
    outcome: str
    before: str
    state: str
    code: str | None
    bucket: int | None
    count: int


class ReceiptResult(NamedTuple):
    """Result of applied receipts: deliveries that changed, queues and delays in seconds of retries, and counts."""

    moved: int
    again: list[tuple[str, float]]
    received: list[ReceivedReceipt]


class EarlyReceipt(msgspec.Struct, array_like=True):
    """A receipt that arrived before the provider id of its message was stored."""

    channel: str
    account: str
    provider_id: str
    receipt: dict[str, Any]


_names = msgspec.json.Decoder(list[tuple[int, str]])
_delays = msgspec.json.Decoder(list[tuple[str, float]])
_received = msgspec.json.Decoder(list[ReceivedReceipt])
_early = msgspec.json.Decoder(list[EarlyReceipt])


def claim_due(
    channel: str, account: str, *, most: int, again: float, queue: str = QUEUE
) -> Operation[tuple[list[ReceiptRequest], int]]:
    """Return the receipts to request now and the number of deliveries. They become due again after `again` seconds."""
    yield from stop_expired(channel, account, queue, MOST_EXAMINED)
    found = yield from take_batches("ask", channel, account, most, again=again, queue=queue)
    ids = [delivery for _, deliveries in found for delivery in deliveries]
    if not found:
        return [], 0
    rows = yield Statement(_sql["provider_ids"], {"ids": array(ids)})
    names = dict(_names.decode(rows[0][0]))
    requests = [
        ReceiptRequest(batch, [(each, names[each]) for each in deliveries if each in names])
        for batch, deliveries in found
    ]
    return requests, len(ids)


def stop_expired(channel: str, account: str, queue: str = QUEUE, most: int = 10_000) -> Operation[None]:
    """Stop requesting receipts whose time is over, among the next `most` batches."""
    place = {"queue": queue, "channel": channel, "account": account}
    yield Statement(_sql["stop_expired"], {**place, "most": most})


def apply(
    channel: str,
    account: str,
    receipts: Sequence[Receipt],
    delays: Sequence[float],
    requested: Mapping[str, Sequence[int]] | None = None,
    *,
    left_over: Mapping[int, Sequence[int]] | None = None,
    drop_unknown: bool = False,
) -> Operation[ReceiptResult]:
    """Apply receipts, each once; a state only moves forward. `delays`: before each retry; then the delivery is dead.

    `requested`: deliveries by provider id. `left_over`: the deliveries of each batch without a receipt; they are
    requested again. `drop_unknown`: a receipt for an unknown message is dropped instead of stored for later.
    """
    known = requested or {}
    if all(_is_plain(receipt) and receipt.provider_id in known for receipt in receipts):
        query, entries = "apply_delivered", _delivered(receipts, known)
    else:
        query, entries = "apply_receipts", _entries(receipts, known)
    values = {"channel": channel, "account": account, "delays": list(delays), "drop_unknown": drop_unknown}
    given = {"receipts": msgspec.json.encode(entries).decode(), "edges": list(BUCKETS)}
    requests = left_over or {}
    ids = [each for group in (*known.values(), *requests.values()) for each in group]
    if requests:
        yield Statement(_sql["hold_batches"], {"batches": array(list(requests))})
    rows = yield Statement(_sql[query], {**values, **given, "ids": array(ids)})
    moved, again, received = rows[0]
    if left_over is not None:
        rest = [{"batch": batch, "ids": list(ids)} for batch, ids in left_over.items()]
        yield Statement(_sql["request_again"], {"left_over": msgspec.json.encode(rest).decode()})
    return ReceiptResult(moved, _delays.decode(again), _received.decode(received))


def _is_plain(receipt: Receipt) -> bool:
    """Return whether the receipt says that the message was delivered, and no more."""
    return receipt.outcome == "delivered" and receipt.id is None and not (receipt.code or receipt.message)


def _delivered(receipts: Sequence[Receipt], known: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    return [
        {"delivery_id": delivery, "provider_id": one_line(receipt.provider_id)}
        for receipt in receipts
        for delivery in known[receipt.provider_id]
    ]


def _entries(receipts: Sequence[Receipt], known: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    return [
        {
            "delivery_id": delivery,
            "provider_id": one_line(receipt.provider_id),
            "outcome": receipt.outcome,
            "code": one_line(receipt.code),
            "message": one_line(receipt.message),
            "receipt_id": None if receipt.id is None else one_line(receipt.id),
        }
        for receipt in receipts
        if receipt.outcome in OUTCOMES
        # One message may stand for several deliveries.
        for delivery in known.get(receipt.provider_id, (None,))
    ]


def early() -> Operation[list[EarlyReceipt]]:
    """Return the early receipts of one channel and account whose messages are stored by now."""
    rows = yield Statement(_sql["early_receipts"])
    return _early.decode(rows[0][0])


def unrequested(queue: str = QUEUE) -> Operation[list[tuple[str, str]]]:
    """Return channels and accounts with due receipts of a queue that have no job."""
    return [(channel, account) for channel, account in (yield Statement(_sql["unrequested"], {"queue": queue}))]
