"""Read queries for events, deliveries, recipients and channels. Every query is bounded."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from sereno.database.statement import Operation, Row, Statement, queries
from sereno.notifications.rows import (
    AddressRow,
    ChannelLine,
    ChannelPause,
    DeliveryDetailRow,
    DeliveryRow,
    EventLine,
    EventRow,
    PreferenceRow,
    ReceiptRow,
    RecipientLine,
    RecipientRow,
    VariantTally,
)
from sereno.search.sql_terms import SearchParams, like_exactly

_sql = queries("notifications/queries")
T = TypeVar("T")

# Newest rows that a list searches.
WINDOW = 100_000
# Upper bounds of counts: deliveries of one event, and pending deliveries of one channel.
TALLY_BOUND = 100_000
PENDING_BOUND = 10_000
# Rows of one kind on a detail page: addresses, preferences, receipts, reasons.
MOST_PARTS = 200
# Keys of an audience on a detail page.
MOST_NAMED = 20


def _rows(shape: type[T], rows: Sequence[Row]) -> list[T]:
    return [msgspec.json.decode(row[0], type=shape) for row in rows]


def _first(shape: type[T], rows: Sequence[Row]) -> T | None:
    return msgspec.json.decode(rows[0][0], type=shape) if rows else None


def now() -> Operation[datetime]:
    rows = yield Statement(_sql["clock"])
    found: datetime = rows[0][0]
    return found


def events(
    *,
    kind: str | None,
    tenant: str | None,
    since: datetime | None,
    before: int | None,
    limit: int,
    search_params: SearchParams | None = None,
) -> Operation[list[EventLine]]:
    params = {"type": kind, "tenant": tenant, "since": since, "before": before, "limit": limit, "window": WINDOW}
    return _rows(EventLine, (yield Statement(_sql["events"], params | _along(search_params))))


def _along(search_params: SearchParams | None) -> dict[str, Any]:
    """Return the parameters that choose the index for the search."""
    if search_params is None:
        return {"along": "newest", "terms": None, "ids": None, "subject": None, "trace": None}
    found = {
        "ids": search_params.numbers("id"),
        "subject": search_params.one("subject"),
        "trace": search_params.one("trace"),
    }
    ways = (("id", "ids"), ("trace", "trace"), ("subject", "subject"))
    along = next((way for way, name in ways if found[name] is not None), "newest")
    return {**found, "along": along, "terms": search_params.terms}


def event(number: int) -> Operation[EventRow | None]:
    return _first(EventRow, (yield Statement(_sql["event"], {"event": number, "most": MOST_NAMED})))


def types(most: int) -> Operation[list[str]]:
    rows = yield Statement(_sql["types"], {"window": WINDOW, "most": most})
    return [row[0] for row in rows]


def events_for(kind: str, *, tenant: str | None, recipient: str | None, most: int) -> Operation[list[EventRow]]:
    """Return the newest events of a type for one recipient, or for any recipient."""
    params = {"type": kind, "tenant": tenant or "", "recipient": recipient, "most": most, "window": WINDOW}
    return _rows(EventRow, (yield Statement(_sql["events_for"], params)))


def event_tally(number: int) -> Operation[list[tuple[str, str, str | None, int]]]:
    """Return channel, state, reason and count, the largest count first."""
    params = {"event": number, "bound": TALLY_BOUND, "most": MOST_PARTS}
    rows = yield Statement(_sql["event_tally"], params)
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def event_variants(number: int) -> Operation[list[VariantTally]]:
    return _rows(VariantTally, (yield Statement(_sql["event_variants"], {"event": number, "bound": TALLY_BOUND})))


def delivery(number: int) -> Operation[DeliveryRow | None]:
    return _first(DeliveryRow, (yield Statement(_sql["delivery"], {"delivery": number})))


def receipts(delivery: int) -> Operation[list[ReceiptRow]]:
    params = {"delivery": delivery, "window": WINDOW, "most": MOST_PARTS}
    return _rows(ReceiptRow, (yield Statement(_sql["receipts"], params)))


def deliveries_for(events: Sequence[int], recipient: int) -> Operation[list[DeliveryDetailRow]]:
    params = {"events": list(events), "recipient": recipient, "most": MOST_PARTS}
    return _rows(DeliveryDetailRow, (yield Statement(_sql["deliveries_for"], params)))


def recipients(
    *,
    pattern: str | None,
    tenant: str | None,
    before: int | None,
    limit: int,
    search_params: SearchParams | None = None,
) -> Operation[list[RecipientLine]]:
    """`pattern`: * matches any text."""
    like = None if pattern is None else like_exactly(pattern).replace("*", "%")
    params: dict[str, Any] = {"pattern": like, "tenant": tenant, "before": before, "limit": limit}
    params |= {"keys": None, "terms": None}
    if search_params is not None:
        whose = tenant or search_params.one("tenant")
        params |= {
            "tenant": whose,
            "terms": search_params.terms,
            "keys": search_params.values("key") if whose else None,
        }
    rows = yield Statement(_sql["recipients"], params | {"window": WINDOW, "addresses": MOST_PARTS})
    return _rows(RecipientLine, rows)


def recipient(key: str, *, tenant: str | None) -> Operation[RecipientRow | None]:
    return _first(RecipientRow, (yield Statement(_sql["recipient"], {"tenant": tenant or "", "key": key})))


def addresses(recipient: int) -> Operation[list[AddressRow]]:
    return _rows(AddressRow, (yield Statement(_sql["addresses"], {"recipient": recipient, "most": MOST_PARTS})))


def preferences(recipient: int | None, *, tenant: str | None) -> Operation[list[PreferenceRow]]:
    """Return the recipient's preferences and the defaults of the tenant, the highest priority first."""
    params = {"recipient": recipient, "tenant": tenant or "", "most": MOST_PARTS}
    return _rows(PreferenceRow, (yield Statement(_sql["preferences"], params)))


def pauses() -> Operation[list[ChannelPause]]:
    return _rows(ChannelPause, (yield Statement(_sql["pauses"], {"most": MOST_PARTS})))


def channels(known: Collection[str]) -> Operation[list[ChannelLine]]:
    """Return the channels that the code declares and those found in the database."""
    params = {"known": sorted(known), "window": WINDOW, "bound": PENDING_BOUND, "most": MOST_PARTS}
    return _rows(ChannelLine, (yield Statement(_sql["channels"], params)))
