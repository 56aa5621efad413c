"""Base of channels whose providers take one message per request: settings, texts, addresses, masked secrets.

Messages of a batch are sent concurrently; outcomes are returned in order. An error affects its own message only. Every
outcome is stripped of secrets before it is returned.
"""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from sereno.channels.contract import Channel, Exchange, Message
from sereno.channels.http import MOST_TEXT, HTTPResponse, call, refused, retry_after
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.errors import ConfigurationError, InvalidAddress

# Concurrent requests for one batch.
AT_ONCE = 10
# Longest wait in seconds that a provider can impose; more is a mistake of the provider.
LONGEST_WAIT = 24 * 3600.0
# Characters. Shorter texts are not masked: that would hide ordinary words.
SHORTEST_SECRET = 6
HIDDEN = "[hidden]"
# Bytes of the id with which Apple replaces a push on the screen.
LONGEST_KEY = 64

# Texts that are safe in a header or a path.
Token = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z")]
Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]+\Z")]
Url = Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://[^\s/?#@\\]+(/[^\s?#\\]*)?\Z")]

Refusal = type[Retryable] | type[Failed] | type[Invalid] | type[Down]

_PROVIDER_ID = re.compile(r"[!-~]{1,300}")
_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")
_BETWEEN_DIGITS = re.compile(r"[ ().\u00a0-]")


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a channel, from its constructor and, with priority, from the account. Its repr shows no values."""

    url: Url

    def lacks(self) -> str:
        """Return the name of a missing setting, or an empty string."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


SettingsT = TypeVar("SettingsT", bound=ChannelSettings)


class SingleMessageChannel(Channel, Generic[SettingsT]):
    """A channel that sends one message per request. Subclasses implement `check`, `secrets` and `send_one`."""

    settings_type: type[SettingsT]
    # Concurrent requests for one batch.
    concurrent: ClassVar[int] = AT_ONCE

    def __init__(self, **defaults: str | bool) -> None:
        names = self.settings_type.__struct_fields__
        if unknown := sorted(set(defaults) - set(names)):
            raise ConfigurationError(
                f"the channel {self.name} has no setting {unknown[0]!r:.40}; use {', '.join(names)}"
            )
        self._constructor_settings = {name: value for name, value in defaults.items() if value not in (None, "")}
        self._defaults = self.settings({})

    def settings(self, account: Mapping[str, Any], *, alone: bool = False) -> SettingsT:
        """Return the constructor's settings, overridden by the account's; `alone`: only the account's."""
        names = self.settings_type.__struct_fields__
        own = {name: account[name] for name in names if account.get(name) not in (None, "")}
        try:
            return msgspec.convert(own if alone else {**self._constructor_settings, **own}, self.settings_type)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"a setting of the channel {self.name} is invalid: {error}") from None

    def check_address(self, address: str) -> str:
        return self.check(address, self._defaults)

    def check(self, address: str, settings: SettingsT, /) -> str:
        """Return the address as it is stored, or raise InvalidAddress; its message must not repeat the address."""
        raise NotImplementedError

    def secrets(self, message: Message, settings: SettingsT, /) -> Iterable[str]:
        """Return the texts that must not appear in an outcome."""
        raise NotImplementedError

    async def send_one(self, message: Message, settings: SettingsT, exchange: Exchange, /) -> Outcome:
        raise NotImplementedError

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        try:
            settings = self.settings(exchange.account, alone=exchange.stands_alone)
        except ConfigurationError as error:
            return [Down("bad_settings", str(error)[:MOST_TEXT])] * len(batch)
        if lacking := settings.lacks():
            return [Down("no_settings", f"the channel {self.name} lacks {lacking}")] * len(batch)
        return await self.send_all(batch, settings, exchange)

    async def send_all(self, batch: Sequence[Message], settings: SettingsT, exchange: Exchange, /) -> Sequence[Outcome]:
        """Send the messages with valid settings; a provider that takes many per request overrides it."""
        return await one_by_one(
            batch, lambda message: self._send_checked(message, settings, exchange), at_once=self.concurrent
        )

    async def _send_checked(self, message: Message, settings: SettingsT, exchange: Exchange) -> Outcome:
        try:
            address = self.check(message.address, settings)
        except InvalidAddress as error:
            return Invalid("bad_address", str(error))
        message = msgspec.structs.replace(message, address=address)
        outcome = await self.send_one(message, settings, exchange)
        return without_secrets(outcome, self.secrets(message, settings))

    def refusal(self, response: HTTPResponse) -> Outcome:
        """Return the outcome for a response whose body is not usable.

        After a server error other than 503 the message may have been sent. Channels with `on_unknown = "park"`, where a
        second message costs money, do not retry it.
        """
        is_server_error = response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if is_server_error and response.status != HTTPStatus.SERVICE_UNAVAILABLE and self.on_unknown == "park":
            return Unknown(f"http_{response.status}", response.text())
        return refused(response) or Unknown("invalid_response", response.text())


async def one_by_one(
    batch: Sequence[Message], send: Callable[[Message], Awaitable[Outcome]], *, at_once: int = AT_ONCE
) -> list[Outcome]:
    """Send each message separately, `at_once` at a time. Return the outcomes in the order of the batch."""
    slots = asyncio.Semaphore(at_once)

    async def one(message: Message) -> Outcome:
        async with slots:
            try:
                return await send(message)
            except Exception as error:  # noqa: BLE001 - a bug with one message must not affect the others
                return Unknown("error", f"internal error of the channel: {type(error).__name__}")

    return await asyncio.gather(*[one(message) for message in batch])


async def post(
    exchange: Exchange,
    url: str,
    content: Any,
    read: Callable[[HTTPResponse], Outcome],
    *,
    headers: Mapping[str, str] | None = None,
    form: bool = False,
) -> Outcome:
    """Send one POST with JSON or a form; `read` maps the response to an outcome.

    Content that cannot be encoded fails before anything is sent.
    """
    try:
        body = urlencode(content).encode() if form else msgspec.json.encode(content)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        return Failed("malformed", f"the message cannot be encoded: {type(error).__name__}")
    kind = "application/x-www-form-urlencoded" if form else "application/json; charset=utf-8"
    response = await call(exchange, "POST", url, data=body, headers={"Content-Type": kind, **(headers or {})})
    return read(response) if isinstance(response, HTTPResponse) else response


def failed_alone(
    outcomes: Sequence[Outcome], code: str, message: str, has_succeeded: Callable[[], bool]
) -> Sequence[Outcome]:
    """Return the outcomes; Down with this code is Failed if the account has succeeded: the message is at fault then."""
    if not any(isinstance(each, Down) and each.code == code for each in outcomes) or not has_succeeded():
        return outcomes
    return [Failed(code, message) if isinstance(each, Down) and each.code == code else each for each in outcomes]


def without_secrets(outcome: Outcome, secrets: Iterable[str]) -> Outcome:
    """Return the outcome with secrets masked, so that it can be shown."""
    if isinstance(outcome, Sent | Delivered):
        return outcome
    code, message = outcome.code, outcome.message
    # The longest first: one secret may contain another.
    for secret in sorted({secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=len, reverse=True):
        code, message = _hide(code, secret), _hide(message, secret)
    return msgspec.structs.replace(outcome, code=code, message=_storable(message))


def _hide(text: str, secret: str) -> str:
    text = text.replace(secret, HIDDEN)
    # A truncated text may end within the secret.
    for length in range(len(secret) - 1, SHORTEST_SECRET - 1, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + HIDDEN
    return text


def _storable(text: str) -> str:
    """Remove NUL and lone surrogates, which PostgreSQL and UTF-8 cannot store."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def text_of(message: Message) -> str:
    """Return title and body on separate lines; empty ones are omitted."""
    return "\n".join(part for part in (message.title, message.body) if part.strip())


def length(text: str) -> int:
    """Return the length in UTF-16 units: no provider counts more."""
    return len(text) + sum(character > "\uffff" for character in text)


def cut(text: str, most: int) -> str:
    """Return the text, truncated with an ellipsis if it is too long."""
    if length(text) <= most:
        return text
    end, left = 0, most - 1
    for character in text:
        left -= 2 if character > "\uffff" else 1
        if left < 0:
            break
        end += 1
    return text[:end].rstrip() + "…"


def short_key(key: str) -> str:
    """Return the key, or its digest if it is too long for an id that replaces a push on the screen."""
    encoded = key.encode("utf-8", "replace")
    return key if len(encoded) <= LONGEST_KEY else hashlib.sha256(encoded).hexdigest()


def phone_number(address: str) -> str:
    """Return the number in E.164 format, without separators between the digits."""
    number = _BETWEEN_DIGITS.sub("", address.strip())
    if not _PHONE.fullmatch(number):
        raise InvalidAddress('a phone number needs its country code, such as "+5511987654321"')
    return number


def origin(url: str) -> str:
    """Return scheme, host and port in lower case."""
    return "/".join(url.split("/", 3)[:3]).lower()


def fields(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty mapping."""
    return value if isinstance(value, dict) else {}


def number(value: Any) -> int | None:
    """Return the value if it is an int, else None."""
    return value if type(value) is int else None


def provider_text(value: Any) -> str:
    """Return a provider's text, truncated for storage; empty if it is not a string."""
    return _storable(value)[:MOST_TEXT] if isinstance(value, str) else ""


def provider_id(*parts: Any) -> str | None:
    """Return the provider's id of a message; None if a part is missing or not a valid id."""
    are_valid = all(isinstance(part, str) and _PROVIDER_ID.fullmatch(part) for part in parts)
    return ":".join(parts) if are_valid else None


def wait(seconds: Any, headers: Mapping[str, str]) -> float | None:
    """Return how long to wait: `seconds` from the response body, or else the header Retry-After."""
    if type(seconds) in (int, float) and seconds >= 0:
        return float(min(seconds, LONGEST_WAIT))
    return retry_after(headers)


def coded_refusal(kind: Refusal, code: Any, message: str, response: HTTPResponse, seconds: Any = None) -> Outcome:
    """Return a refusal with the provider's code. `seconds`: for Retryable, the wait from the response body."""
    if kind is Retryable:
        return Retryable(str(code), message, after=wait(seconds, response.headers))
    return kind(str(code), message)
