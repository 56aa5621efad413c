"""Figures of notifications by the hour and the minute: what became of deliveries, and how providers fare."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.notifications.deliveries.stats import DeliveryTally

_sql = queries("notifications/deliveries/stats_queries")

# Of codes of one channel and account, so many are shown: the most frequent ones.
MOST_CODES = 20


@dataclass(frozen=True, slots=True)
class StateFigures:
    """How many came to a state in a span of time, for a reason."""

    at: datetime
    state: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """What became of the deliveries of one tenant in a span of time."""

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
    """What was given to a provider in a span of time, and what it said."""

    at: datetime
    sent: int
    accepted: int
    throttled: int
    failed: int


@dataclass(frozen=True, slots=True)
class ChannelFigures:
    """How a channel and account fare. `receipts`: counts by bucket of how long they took."""

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
    """What somebody has seen become of deliveries."""
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
    """Of the last so many seconds and the hour in which they began, the oldest first."""
    rows = yield Statement(_sql["hours"], {"since": since, "step": step, "event": event, "channel": channel})
    return [StateFigures(*row) for row in rows]


def tenant_hours(
    since: float, *, step: float, tenant: str, channel: str | None = None
) -> Operation[list[TenantFigures]]:
    """The same of one tenant; empty for what belongs to none."""
    rows = yield Statement(_sql["tenant_hours"], {"since": since, "step": step, "tenant": tenant, "channel": channel})
    return [TenantFigures(*row) for row in rows]


def channels(since: float, *, step: float, most: int, channel: str | None = None) -> Operation[list[ChannelFigures]]:
    """By name and account: those by which most was sent, and those that are paused."""
    params = {"since": since, "step": step, "most": most, "channel": channel, "codes": MOST_CODES}
    return [_channels.decode(row[0]) for row in (yield Statement(_sql["channels"], params))]
