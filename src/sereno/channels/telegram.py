"""Telegram through a bot, one message per request.

The bot's token is part of every URL: it appears in no outcome. Text is sent as it is. With
`options = {"parse_mode": "html"}` the message's `html` is sent, which the template has escaped; without `html`, the
text is escaped and sent.

Account settings: bot_token, url.
"""

import html
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, Any, ClassVar

import msgspec

from sereno.channels.contract import Exchange, Message
from sereno.channels.http import HTTPResponse
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable
from sereno.channels.single_message import (
    ChannelSettings,
    Refusal,
    SingleMessageChannel,
    Url,
    coded_refusal,
    cut,
    fields,
    number,
    post,
    provider_text,
    text_of,
)
from sereno.errors import InvalidAddress
from sereno.jobs.limits.limit import Rate

# Characters of a message.
LONGEST = 4096
# Error descriptions that are about the chat and not the message.
NO_CHAT = ("chat not found", "user not found", "peer_id_invalid", "group chat was upgraded", "chat_id_invalid")

BotToken = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,20}:[A-Za-z0-9_-]+\Z")]

_CHAT = re.compile(r"-?[1-9][0-9]{0,15}|@[A-Za-z][A-Za-z0-9_]{3,31}")


class TelegramSettings(ChannelSettings, frozen=True, kw_only=True):
    """Settings of `Telegram`. `bot_token`: as BotFather gives it."""

    url: Url = "https://api.telegram.org"
    bot_token: BotToken = ""

    def lacks(self) -> str:
        return "" if self.bot_token else "bot_token"


class Telegram(SingleMessageChannel[TelegramSettings]):
    """A message to a Telegram user, group or channel."""

    name: ClassVar[str] = "telegram"
    rate: ClassVar[Rate | None] = Rate(30, per="1s")
    settings_type = TelegramSettings

    def check(self, address: str, _settings: TelegramSettings, /) -> str:
        address = address.strip()
        if not _CHAT.fullmatch(address):
            raise InvalidAddress('a Telegram chat is a number such as "-1001234567890" or a name such as "@news"')
        return address

    def secrets(self, _message: Message, settings: TelegramSettings, /) -> Iterable[str]:
        return (settings.bot_token, settings.bot_token.partition(":")[2])

    async def send_one(self, message: Message, settings: TelegramSettings, exchange: Exchange, /) -> Outcome:
        content = _content(message)
        if isinstance(content, Failed):
            return content
        url = f"{settings.url.rstrip('/')}/bot{settings.bot_token}/sendMessage"
        return await post(exchange, url, content, self._read)

    def _read(self, response: HTTPResponse) -> Outcome:
        body = fields(response.json())
        if body.get("ok") is True and response.is_ok:
            result = fields(body.get("result"))
            chat, name = number(fields(result.get("chat")).get("id")), number(result.get("message_id"))
            return Delivered(None if chat is None or name is None else f"{chat}:{name}")
        if body.get("ok") is not False:
            is_no_bot = response.status == HTTPStatus.NOT_FOUND
            return Down("http_404", response.text()) if is_no_bot else self.refusal(response)
        text, more = provider_text(body.get("description")), fields(body.get("parameters"))
        if (moved := number(more.get("migrate_to_chat_id"))) is not None:
            text = f"{text}: the chat is {moved} now"
        kind = _meaning(response.status, text.lower())
        if kind is None:
            return self.refusal(response)
        return coded_refusal(kind, f"http_{response.status}", text, response, more.get("retry_after"))


def _meaning(code: int, text: str) -> Refusal | None:
    match code:
        case 401 | 404:
            return Down
        case 403:
            return Invalid
        case 429:
            return Retryable
        case 400:
            return Invalid if any(sentence in text for sentence in NO_CHAT) else Failed
        case _:
            return None


def _content(message: Message) -> dict[str, Any] | Failed:
    is_html = str(message.options.get("parse_mode", "")).lower() == "html"
    # Markup is not truncated: its tags would be cut, and Telegram counts the characters after parsing.
    text = _markup(message) if is_html else cut(text_of(message), LONGEST)
    if not text:
        return Failed("empty", "a message needs text")
    chat = message.address if message.address.startswith("@") else int(message.address)
    return {"chat_id": chat, "text": text, **({"parse_mode": "HTML"} if is_html else {})}


def _markup(message: Message) -> str:
    body = html.escape(message.body) if message.html is None else message.html
    return "\n".join(part for part in (html.escape(message.title), body) if part.strip())
