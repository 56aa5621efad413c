"""Receipts: whom to ask for, and what providers say."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from sereno.channels.outcome import Receipt
from sereno.database.statement import Operation, Statement, array, queries
from sereno.error_text import one_line
from sereno.notifications.deliveries.store import take_batches
from sereno.telemetry.metrics import BUCKETS

_sql = queries("notifications/deliveries/receipts")

OUTCOMES = frozenset(get_args(get_type_hints(Receipt)["outcome"]))


class ReceiptQuestion(NamedTuple):
    """A batch of deliveries to be asked about, and the names that the provider gave to them."""

    batch: int
    deliveries: list[tuple[int, str]]


class ReceivedReceipt(msgspec.Struct, array_like=True):
    """What was heard of so many deliveries. `bucket`: how long after they were sent, by the place among BUCKETS."""

    event: str | None
    tenant: str
    outcome: str
    before: str
    state: str
    code: str | None
    bucket: int | None
    count: int


class ReceiptResult(NamedTuple):
    """How many deliveries receipts moved, in how many seconds some are to be sent again, and what was heard of them."""

    moved: int
    again: list[float]
    told: list[ReceivedReceipt]


class EarlyReceipt(msgspec.Struct, array_like=True):
    """A receipt that came before its message was written down."""

    channel: str
    account: str
    provider_id: str
    receipt: dict[str, Any]


_names = msgspec.json.Decoder(list[tuple[int, str]])
_delays = msgspec.json.Decoder(list[float])
_told = msgspec.json.Decoder(list[ReceivedReceipt])
_early = msgspec.json.Decoder(list[EarlyReceipt])


def ask(channel: str, account: str, *, most: int, again: float) -> Operation[tuple[list[ReceiptQuestion], int]]:
    """Whom to ask for now, and how many deliveries that were. They are due again a while later."""
    yield from end_asking(channel, account)
    found = yield from take_batches("ask", channel, account, most, again=again)
    ids = [delivery for _, deliveries in found for delivery in deliveries]
    if not found:
        return [], 0
    rows = yield Statement(_sql["ask"], {"ids": array(ids)})
    names = dict(_names.decode(rows[0][0]))
    questions = [
        ReceiptQuestion(batch, [(each, names[each]) for each in deliveries if each in names])
        for batch, deliveries in found
    ]
    return questions, len(ids)


def end_asking(channel: str, account: str) -> Operation[None]:
    """Whose time is over is asked about no more."""
    yield Statement(_sql["end_asking"], {"channel": channel, "account": account})


def apply(
    channel: str,
    account: str,
    receipts: Sequence[Receipt],
    delays: Sequence[float],
    asked_for: Mapping[str, Sequence[int]] | None = None,
    *,
    left_over: Mapping[int, Sequence[int]] | None = None,
    told_before: bool = False,
) -> Operation[ReceiptResult]:
    """Only ever forward, each once. `delays`: before each new try; what used them up is a dead letter.

    `asked_for`: deliveries by the names that the provider gave to them. `left_over`: the deliveries of each batch that
    were asked about and not answered; they are asked about again. `told_before`: one that nobody knows is not kept for
    later.
    """
    known = asked_for or {}
    if left_over is not None:
        ids = sorted({each for group in (*known.values(), *left_over.values()) for each in group})
        yield Statement(_sql["hold_asked"], {"batches": sorted(left_over), "ids": ids})
    said = [
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
        # One message may be several deliveries.
        for delivery in known.get(receipt.provider_id, (None,))
    ]
    values = {"channel": channel, "account": account, "delays": list(delays), "told_before": told_before}
    given = {"receipts": msgspec.json.encode(said).decode(), "edges": list(BUCKETS)}
    rows = yield Statement(_sql["apply_receipts"], {**values, **given})
    moved, again, told = rows[0]
    if left_over is not None:
        rest = [{"batch": batch, "ids": list(ids)} for batch, ids in left_over.items()]
        yield Statement(_sql["asked"], {"left_over": msgspec.json.encode(rest).decode()})
    return ReceiptResult(moved, _delays.decode(again), _told.decode(told))


def early() -> Operation[list[EarlyReceipt]]:
    """Those of one channel and account that came before their message, and whose message is known by now."""
    rows = yield Statement(_sql["early_receipts"])
    return _early.decode(rows[0][0])


def unasked() -> Operation[list[tuple[str, str]]]:
    """Channels and accounts whose receipts nobody asks for."""
    return [(channel, account) for channel, account in (yield Statement(_sql["unasked"]))]
