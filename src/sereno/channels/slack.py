"""Slack, one message per request: through an incoming webhook or a bot.

An address is a webhook's URL, which is a secret, or the id of a channel or user, which needs the bot's token. For a
bot, Slack always responds with status 200, and the body has the result. For a webhook, the body is one word.

Account settings: bot_token, url.
"""

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

from sereno.channels.contract import Exchange, Message
from sereno.channels.http import HTTPResponse
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable
from sereno.channels.single_message import (
    ChannelSettings,
    Refusal,
    SingleMessageChannel,
    Token,
    Url,
    coded_refusal,
    fields,
    origin,
    post,
    provider_id,
    provider_text,
    text_of,
)
from sereno.errors import InvalidAddress

HOOKS = "https://hooks.slack.com"

# What an error word means in a response to a bot. Any other word is about the message only.
BOT_ERRORS: Mapping[str, Refusal] = {
    "access_denied": Down,
    "account_inactive": Down,
    "invalid_auth": Down,
    "missing_scope": Down,
    "no_permission": Down,
    "not_allowed_token_type": Down,
    "not_authed": Down,
    "org_login_required": Down,
    "token_expired": Down,
    "token_revoked": Down,
    "fatal_error": Retryable,
    "internal_error": Retryable,
    "message_limit_exceeded": Retryable,
    "rate_limited": Retryable,
    "ratelimited": Retryable,
    "request_timeout": Retryable,
    "service_unavailable": Retryable,
    "team_added_to_org": Retryable,
    "channel_not_found": Invalid,
    "is_archived": Invalid,
    "user_not_found": Invalid,
}
# What an error word of a webhook means. The address is the credential, so no error is about the whole channel.
WEBHOOK_ERRORS: Mapping[str, Refusal] = {
    "rollup_error": Retryable,
    "action_prohibited": Failed,
    "posting_to_general_channel_denied": Failed,
    "channel_is_archived": Invalid,
    "channel_not_found": Invalid,
    "invalid_token": Invalid,
    "no_active_hooks": Invalid,
    "no_service": Invalid,
    "no_service_id": Invalid,
    "no_team": Invalid,
    "team_disabled": Invalid,
    "user_not_found": Invalid,
}

_HOOK = re.compile(r"https?://[^/?#@\\\s]+/services/([A-Za-z0-9]{1,40}/[A-Za-z0-9]{1,40}/([A-Za-z0-9]{1,100}))")
_ID = re.compile(r"[CDGUW][A-Z0-9]{2,30}")
_WORD = re.compile(r"[a-z_]{1,60}")


class SlackSettings(ChannelSettings, frozen=True, kw_only=True):
    """Settings of `Slack`. `bot_token`: `xoxb-…`; an address that is a webhook needs none."""

    url: Url = "https://slack.com"
    bot_token: Token = ""


class Slack(SingleMessageChannel[SlackSettings]):
    """A message in a Slack channel or to a user."""

    name: ClassVar[str] = "slack"
    settings_type = SlackSettings

    def check(self, address: str, settings: SlackSettings, /) -> str:
        address = address.strip()
        is_hook = _HOOK.fullmatch(address) and origin(address) in (HOOKS, origin(settings.url))
        if not is_hook and not _ID.fullmatch(address):
            raise InvalidAddress('a Slack address is an id such as "C0123456789" or the URL of an incoming webhook')
        return address

    def secrets(self, message: Message, settings: SlackSettings, /) -> Iterable[str]:
        found = _HOOK.fullmatch(message.address)
        return (settings.bot_token, *((message.address, found[1], found[2]) if found else ()))

    async def send_one(self, message: Message, settings: SlackSettings, exchange: Exchange, /) -> Outcome:
        text = escaped(text_of(message))
        if not text:
            return Failed("empty", "a message needs text")
        if not _ID.fullmatch(message.address):
            return await post(exchange, message.address, {"text": text}, self._read_word)
        # Not Down: users enter addresses, and one address must not stop the deliveries to webhooks.
        if not settings.bot_token:
            return Failed("no_bot_token", "the id of a channel or user needs the setting bot_token")
        content = {"channel": message.address, "text": text}
        url = f"{settings.url.rstrip('/')}/api/chat.postMessage"
        headers = {"Authorization": f"Bearer {settings.bot_token}"}
        return await post(exchange, url, content, self._read, headers=headers)

    def _read(self, response: HTTPResponse) -> Outcome:
        body = fields(response.json())
        if body.get("ok") is True and response.is_ok:
            return Delivered(provider_id(body.get("channel"), body.get("ts")))
        word = provider_text(body.get("error"))
        if body.get("ok") is not False or not _WORD.fullmatch(word):
            return self.refusal(response)
        needed = provider_text(body.get("needed"))
        return coded_refusal(BOT_ERRORS.get(word, Failed), word, f"needs {needed}" if needed else word, response)

    def _read_word(self, response: HTTPResponse) -> Outcome:
        word = response.text().strip()
        if response.is_ok:
            return Delivered() if word == "ok" else self.refusal(response)
        meaning = WEBHOOK_ERRORS.get(word)
        return self.refusal(response) if meaning is None else coded_refusal(meaning, word, word, response)


def escaped(text: str) -> str:
    """Escape the text so that Slack reads no link, mention or command in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
