"""Deliveries: taken in batches, recorded one by one, moved on by receipts."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from sereno.domain.delivery import Receipt, kept
from sereno.domain.stored import encoder
from sereno.domain.verdict import Verdict
from sereno.store.statement import Operation, Statement, queries

_sql = queries("deliveries")
_ids = msgspec.json.Decoder(list[int])
_texts = msgspec.json.Decoder(list[str])
_stranded = msgspec.json.Decoder(list[tuple[int, int]])


class Taken(msgspec.Struct, array_like=True, gc=False):
    """A delivery that is being sent; the field order is that of the statement."""

    id: int
    address_id: int | None
    address: str | None
    keys: dict[str, Any] | None
    recipient_id: int
    recipient: str
    locale: str | None
    tenant: str | None
    event: str
    payload: msgspec.Raw
    attempt: int
    digest: str | None = None
    # Payloads of all that this one tells of, the oldest first.
    gathered: list[msgspec.Raw] = []


class Batch(NamedTuple):
    """`looked_at`: also those that are not sent after all. `due_in`: when the next of those held is due."""

    deliveries: list[Taken]
    looked_at: int
    due_in: float | None


class Applied(NamedTuple):
    """Receipts that moved something, addresses that ended, and how many are to be sent again."""

    moved: int
    addresses: int
    again: int


OUTCOMES = frozenset(get_args(get_type_hints(Receipt)["outcome"]))

_taken = msgspec.json.Decoder(list[Taken])
_carriers = msgspec.json.Decoder(list[tuple[int, list[msgspec.Raw] | None]])


def take(channel: str, account: str, job: int, batch: int) -> Operation[Batch]:
    """The next ones of a channel become `sending`, by this job."""
    rows = yield Statement(_sql["take"], {"channel": channel, "account": account, "job": job, "batch": batch})
    found, count, due_in = rows[0]
    taken = _taken.decode(found)
    if any(each.digest is not None for each in taken):
        taken = yield from _gathered(job, taken)
    return Batch(taken, count, due_in)


def _gathered(job: int, taken: Sequence[Taken]) -> Operation[list[Taken]]:
    """One for each message: who belongs into it comes along."""
    ids = [each.id for each in taken if each.digest is not None]
    rows = yield Statement(_sql["gather"], {"ids": ids, "job": job})
    carriers = dict(_carriers.decode(rows[0][0]))
    for each in taken:
        each.gathered = carriers.get(each.id) or []
    return [each for each in taken if each.digest is None or each.id in carriers]


def stranded(channel: str, account: str, job: int) -> Operation[list[tuple[int, int]]]:
    """Those that somebody began to send and was not heard of again, and how often that had happened before."""
    rows = yield Statement(_sql["stranded"], {"channel": channel, "account": account, "job": job})
    return _stranded.decode(rows[0][0])


def record(job: int, records: Sequence[Verdict], *, of_others: bool = False) -> Operation[set[int]]:
    """Write them; answers those that were ours. `of_others`: they were stranded by somebody else."""
    rows = yield Statement(
        _sql["record"], {"outcomes": msgspec.json.encode(records).decode(), "job": job, "stranded": of_others}
    )
    return set(_ids.decode(rows[0][0]))


def put_into_inbox(job: int, messages: Sequence[Mapping[str, Any]]) -> Operation[int]:
    rows = yield Statement(_sql["put_into_inbox"], {"messages": encoder.encode(messages).decode(), "job": job})
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


def awaiting_receipts(
    channel: str, account: str, *, batch: int, again: float, longest: float
) -> Operation[tuple[list[str], int]]:
    """Provider ids to ask for, and how many rows that were."""
    rows = yield Statement(
        _sql["awaiting_receipts"],
        {"channel": channel, "account": account, "batch": batch, "again": again, "longest": longest},
    )
    return _texts.decode(rows[0][0]), rows[0][1]


def apply_receipts(
    channel: str, account: str, receipts: Sequence[Receipt], delays: Sequence[float]
) -> Operation[Applied]:
    """Only ever forward, each once. `delays`: before each new try; what used them up is a dead letter."""
    said = [
        {
            "provider_id": kept(receipt.provider_id),
            "outcome": receipt.outcome,
            "code": kept(receipt.code),
            "message": kept(receipt.message),
            "receipt_id": None if receipt.id is None else kept(receipt.id),
        }
        for receipt in receipts
        if receipt.outcome in OUTCOMES
    ]
    rows = yield Statement(
        _sql["apply_receipts"],
        {
            "channel": channel,
            "account": account,
            "receipts": msgspec.json.encode(said).decode(),
            "delays": list(delays),
        },
    )
    moved, addresses, again = rows[0]
    return Applied(moved, addresses, again)


def neglected() -> Operation[list[tuple[str, str]]]:
    """Channels and accounts with something to send that nobody sends."""
    return [(channel, account) for channel, account in (yield Statement(_sql["neglected"]))]


def unasked() -> Operation[list[tuple[str, str]]]:
    """Channels and accounts whose receipts nobody asks for."""
    return [(channel, account) for channel, account in (yield Statement(_sql["unasked"]))]


def waiting_accounts(channel: str) -> Operation[list[str]]:
    """Those with something to send on a channel."""
    return [row[0] for row in (yield Statement(_sql["waiting_accounts"], {"channel": channel}))]


def requeue(ids: Collection[int]) -> Operation[list[tuple[int, str, str]]]:
    """Back to work; answers id, channel and account of those that were."""
    rows = yield Statement(_sql["requeue"], {"ids": sorted(ids)})
    return msgspec.json.decode(rows[0][0], type=list[tuple[int, str, str]])
