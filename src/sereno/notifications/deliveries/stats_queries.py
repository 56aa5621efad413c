"""Statistics of notifications by hour and minute: outcomes of deliveries, and health of channels."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.notifications.deliveries.stats import DeliveryTally

_sql = queries("notifications/deliveries/stats_queries")

# Most error codes shown per channel and account, the most frequent first.
MOST_CODES = 20


@dataclass(frozen=True, slots=True)
class StateFigures:
    """Number of deliveries that reached a state in a time step, by reason."""

    at: datetime
    state: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """Outcomes of the deliveries of one tenant in a time step."""

    at: datetime
    matched: int
    eligible: int
    skipped: int
    sent: int
    accepted: int
    delivered: int
    read: int
    failed: int


@dataclass(frozen=True, slots=True)
class ChannelStep:
    """Messages given to a provider in a time step, by its response."""

    at: datetime
    sent: int
    accepted: int
    throttled: int
    failed: int


@dataclass(frozen=True, slots=True)
class ChannelFigures:
    """Counts of one channel and account. `receipts`: counts by bucket of the time until the receipt."""

    channel: str
    account: str
    sent: int
    accepted: int
    throttled: int
    failed: int
    unknown: int
    receipts: Sequence[int]
    paused_since: datetime | None
    paused_why: str | None
    codes: Sequence[tuple[str, int]]
    steps: Sequence[ChannelStep]


_channels = msgspec.json.Decoder(ChannelFigures)


def add(tally: DeliveryTally) -> Operation[None]:
    """Add counted changes of deliveries to the statistics."""
    states = [
        {"event": event, "channel": channel, "state": state, "reason": reason, "count": count}
        for (event, channel, state, reason), count in tally.states.items()
    ]
    tenants = [{"tenant": tenant, "channel": channel, **each} for (tenant, channel), each in tally.tenants.items()]
    channels, codes = [], []
    for (channel, account), each in tally.channels.items():
        place = {"channel": channel, "account": account}
        figures = msgspec.structs.asdict(each)
        codes += [place | {"code": code, "count": count} for code, count in figures.pop("codes").items()]
        channels.append(place | figures)
    lines: dict[str, list[dict[str, Any]]] = {
        "add_hours": states,
        "add_tenants": tenants,
        "add_minutes": channels,
        "add_codes": codes,
    }
    for name, each_line in lines.items():
        if each_line:
            yield Statement(_sql[name], {"lines": msgspec.json.encode(each_line).decode()})


def hours(
    since: float, *, step: float, event: str | None = None, channel: str | None = None
) -> Operation[list[StateFigures]]:
    """Return the figures of the last `since` seconds, from the start of their first hour, oldest first."""
    rows = yield Statement(_sql["hours"], {"since": since, "step": step, "event": event, "channel": channel})
    return [StateFigures(*row) for row in rows]


def tenant_hours(
    since: float, *, step: float, tenant: str, channel: str | None = None
) -> Operation[list[TenantFigures]]:
    """Return the figures of one tenant; the empty string selects deliveries without a tenant."""
    rows = yield Statement(_sql["tenant_hours"], {"since": since, "step": step, "tenant": tenant, "channel": channel})
    return [TenantFigures(*row) for row in rows]


def channels(since: float, *, step: float, most: int, channel: str | None = None) -> Operation[list[ChannelFigures]]:
    """Return channels by name and account: those that sent most, and those that are paused."""
    params = {"since": since, "step": step, "most": most, "channel": channel, "codes": MOST_CODES}
    return [_channels.decode(row[0]) for row in (yield Statement(_sql["channels"], params))]
