"""Discord through channel webhooks, one message per request.

The address is the webhook's URL, which is a secret: it appears in no outcome. Mentions in a message are disabled.
`options = {"embeds": […]}` sends embeds beside the text or instead of it.

Account settings: url, for a host other than Discord's.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, ClassVar

from sereno.channels.contract import Exchange, Message
from sereno.channels.http import HTTPResponse
from sereno.channels.outcome import Delivered, Failed, Invalid, Outcome, Retryable, Unknown
from sereno.channels.single_message import (
    ChannelSettings,
    SingleMessageChannel,
    Url,
    coded_refusal,
    cut,
    fields,
    number,
    origin,
    post,
    provider_id,
    provider_text,
    text_of,
)
from sereno.errors import InvalidAddress

# Characters of a message.
LONGEST = 2000
HOSTS = frozenset(
    f"https://{prefix}{host}" for prefix in ("", "ptb.", "canary.") for host in ("discord.com", "discordapp.com")
)

_WEBHOOK = re.compile(r"https?://[^/?#@\\\s]+/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{1,20}/([A-Za-z0-9_-]{1,200})")


class DiscordSettings(ChannelSettings, frozen=True, kw_only=True):
    """Settings of `Discord`. `url`: where it sends; tests set their own."""

    url: Url = "https://discord.com"


class Discord(SingleMessageChannel[DiscordSettings]):
    """A message in a Discord channel."""

    name: ClassVar[str] = "discord"
    settings_type = DiscordSettings

    def check(self, address: str, settings: DiscordSettings, /) -> str:
        address = address.strip()
        if not _WEBHOOK.fullmatch(address) or origin(address) not in HOSTS | {origin(settings.url)}:
            raise InvalidAddress('a Discord webhook has the form "https://discord.com/api/webhooks/<number>/<token>"')
        return address

    def secrets(self, message: Message, _settings: DiscordSettings, /) -> Iterable[str]:
        found = _WEBHOOK.fullmatch(message.address)
        return (message.address, found[1] if found else "")

    async def send_one(self, message: Message, _settings: DiscordSettings, exchange: Exchange, /) -> Outcome:
        content: dict[str, Any] = {"allowed_mentions": {"parse": []}}
        if text := cut(text_of(message), LONGEST):
            content["content"] = text
        if embeds := message.options.get("embeds"):
            content["embeds"] = embeds
        if len(content) == 1:
            return Failed("empty", "a message needs text or embeds")
        return await post(exchange, f"{message.address}?wait=true", content, self._read)

    def _read(self, response: HTTPResponse) -> Outcome:
        body = fields(response.json())
        if response.is_ok:
            name = provider_id(body.get("id"))
            return Delivered(name) if name else Unknown("invalid_response", response.text())
        if response.status == HTTPStatus.TOO_MANY_REQUESTS:
            return coded_refusal(
                Retryable, "http_429", provider_text(body.get("message")), response, body.get("retry_after")
            )
        code = number(body.get("code"))
        # Without a code the response is not from Discord, and the webhook may still exist.
        if code is None or response.status not in (400, 401, 404):
            return self.refusal(response)
        kind = Failed if response.status == HTTPStatus.BAD_REQUEST else Invalid
        return coded_refusal(kind, code, provider_text(body.get("message")), response)
