"""Channels: every provider and account, whether it works, how fast, and its callback URL."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from sereno.channels.contract import Channel
from sereno.duration import duration_text, seconds
from sereno.monitoring.alerts.condition_queries import is_failing
from sereno.notifications import operations as notifications
from sereno.notifications import queries as notification_queries
from sereno.notifications.deliveries import figures
from sereno.notifications.deliveries.figures import ChannelHealth
from sereno.notifications.operations import ChannelState
from sereno.notifications.rows import ChannelPause
from sereno.server.web.command_examples import copies
from sereno.server.web.notifications.page_parts import AT_ONCE, FigureBar, bars, tabs
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes

FRESH = 3.0
HOUR = 3600.0
STEP = 120.0


@dataclass(frozen=True, slots=True)
class ChannelAccount:
    """A channel with one set of credentials; `name` is empty for the shared account."""

    name: str
    pause: ChannelPause | None
    health: ChannelHealth | None
    codes: Sequence[FigureBar]
    callback: str | None


@dataclass(frozen=True, slots=True)
class ChannelCard:
    """One channel. `most`: the rate limit of its provider, in words."""

    channel_state: ChannelState
    most: str | None
    largest: int | None
    receipts: str | None
    accounts: Sequence[ChannelAccount]

    @property
    def state(self) -> str:
        """Paused, failing or working; failing as in the alert `channel.failing`."""
        found = self.channel_state
        if any(not each.account for each in found.pauses):
            return "paused"
        failed = found.failed + found.unknown
        return "failing" if is_failing(failed, failed + found.sent) else "working"


def routes(pages: PageRoutes) -> None:
    """`/channels`."""

    @pages.at("/channels")
    async def channels(page: PageRequest) -> Response:
        known: dict[str, Channel] = page.context.app.channels.known
        found, pauses, health = await asyncio.gather(
            page.load(
                ("channels", tuple(sorted(known))), partial(notifications.list_channels, list(known)), fresh=FRESH
            ),
            page.load("pauses", notification_queries.pauses, fresh=AT_ONCE),
            page.load(("channel health", HOUR), partial(figures.channel_health, HOUR, step=STEP), fresh=5.0),
        )
        stopped = pauses.value or []
        states = [
            replace(each, pauses=[one for one in stopped if one.channel == each.channel]) for each in found.value or []
        ]
        lines = [_line(page, each, known.get(each.channel), health.value or []) for each in states]
        return page.render(
            "channels.html",
            tabs=tabs(page),
            found=found,
            lines=lines,
            sentence=_sentence(page, lines),
            copies=copies(page, cli=["channel", "list"], path="channels"),
        )


def _sentence(page: PageRequest, lines: Sequence[ChannelCard]) -> str:
    if not lines:
        return page.say("There is no channel yet.")
    paused = [line for line in lines if line.channel_state.pauses]
    if not paused:
        return page.say("%(count)s channels, and all of them work.", count=len(lines))
    held = figure(sum(line.channel_state.pending.value for line in paused))
    if len(paused) == 1:
        return page.say(
            "%(channel)s is paused; %(held)s deliveries wait.", channel=paused[0].channel_state.channel, held=held
        )
    return page.say("%(count)s channels are paused; %(held)s deliveries wait.", count=len(paused), held=held)


def _line(
    page: PageRequest, channel_state: ChannelState, channel: Channel | None, health: Sequence[ChannelHealth]
) -> ChannelCard:
    mine = {each.account or "": each for each in health if each.channel == channel_state.channel}
    pauses = {each.account: each for each in channel_state.pauses}
    has_callbacks = channel is not None and type(channel).webhook is not Channel.webhook
    accounts = [
        ChannelAccount(
            name,
            pauses.get(name),
            mine.get(name),
            bars((code, number, "dead", None) for code, number in list(mine[name].codes.items())[:5])
            if name in mine
            else (),
            _callback(page, channel_state.channel, name) if has_callbacks else None,
        )
        for name in sorted({"", *mine, *pauses})
    ]
    return ChannelCard(
        channel_state, _most(page, channel), getattr(channel, "largest", None), _receipts(page, channel), accounts
    )


def _most(page: PageRequest, channel: Any) -> str | None:
    rate = getattr(channel, "rate", None)
    if rate is None:
        return None
    per = seconds(rate.per)
    if per == 1:
        return page.say("%(count)s a second", count=f"{rate.amount:g}")
    return page.say("%(count)s in %(time)s", count=f"{rate.amount:g}", time=duration_text(per))


def _receipts(page: PageRequest, channel: Channel | None) -> str | None:
    if channel is None or channel.receipts_after is None:
        return None
    return page.say("requested after %(time)s", time=duration_text(channel.receipts_after))


def _callback(page: PageRequest, channel: str, account: str) -> str:
    """Return the callback URL to enter in the provider's console."""
    root = (page.context.settings.public_url or str(page.request.base_url)).rstrip("/")
    tail = "/".join(quote(part, safe="") for part in (channel, account) if part)
    return f"{root}/api/v1/callbacks/{tail}"
