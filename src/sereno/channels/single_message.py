"""What channels share whose providers take one message a request: settings, texts, addresses, and secrets kept.

Messages of a batch leave side by side and are answered in order. Whatever goes wrong with one of them is its own
outcome. No outcome leaves here with a secret in it, whoever wrote it there.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from sereno.channels.contract import Channel, Exchange, Message
from sereno.channels.http import MOST_TEXT, HTTPAnswer, call, refused, retry_after
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.errors import ConfigurationError, InvalidAddress

# So many requests of one batch are under way together.
AT_ONCE = 10
# A provider that asks for a longer wait has made a mistake.
LONGEST_WAIT = 24 * 3600.0
# Shorter ones are no secrets, and would blacken ordinary words.
SHORTEST_SECRET = 6
HIDDEN = "[hidden]"

# What can stand in a header or a path without changing its meaning.
Token = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z")]
Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]+\Z")]
Url = Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://[^\s/?#@\\]+(/[^\s?#\\]*)?\Z")]

Refusal = type[Retryable] | type[Failed] | type[Invalid] | type[Down]

_PROVIDER_ID = re.compile(r"[!-~]{1,300}")
_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")
_BETWEEN_DIGITS = re.compile(r"[ ().\u00a0-]")


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a channel must know, from its constructor and, above that, from the account. Its repr tells nothing."""

    url: Url

    def lacks(self) -> str:
        """What is missing before anything can be sent."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


Known = TypeVar("Known", bound=ChannelSettings)


class SingleMessageChannel(Channel, Generic[Known]):
    """A channel that sends one message a request. Subclasses write `check`, `secrets` and `send_one`."""

    settings_type: type[Known]

    def __init__(self, **defaults: str) -> None:
        names = self.settings_type.__struct_fields__
        if unknown := sorted(set(defaults) - set(names)):
            raise ConfigurationError(f"the channel {self.name} has no {unknown[0]!r:.40}; it knows {', '.join(names)}")
        self._given = {name: value for name, value in defaults.items() if value}
        self._defaults = self.settings({})

    def settings(self, account: Mapping[str, Any], *, alone: bool = False) -> Known:
        """The account's, where it says something; the constructor's otherwise, unless it stands alone."""
        names = self.settings_type.__struct_fields__
        said = {name: account[name] for name in names if account.get(name) not in (None, "")}
        try:
            return msgspec.convert(said if alone else {**self._given, **said}, self.settings_type)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"a setting of the channel {self.name} makes no sense: {error}") from None

    def check_address(self, address: str) -> str:
        return self.check(address, self._defaults)

    def check(self, address: str, settings: Known, /) -> str:
        """The address as it is stored, or InvalidAddress, which does not repeat it."""
        raise NotImplementedError

    def secrets(self, message: Message, settings: Known, /) -> Iterable[str]:
        """What must not be read in an outcome."""
        raise NotImplementedError

    async def send_one(self, message: Message, settings: Known, exchange: Exchange, /) -> Outcome:
        raise NotImplementedError

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        try:
            settings = self.settings(exchange.account, alone=exchange.stands_alone)
        except ConfigurationError as error:
            return [Down("bad_settings", str(error)[:MOST_TEXT])] * len(batch)
        if lacking := settings.lacks():
            return [Down("no_settings", f"the channel {self.name} lacks {lacking}")] * len(batch)
        return await one_by_one(batch, lambda message: self._checked(message, settings, exchange))

    async def _checked(self, message: Message, settings: Known, exchange: Exchange) -> Outcome:
        try:
            address = self.check(message.address, settings)
        except InvalidAddress as error:
            return Invalid("bad_address", str(error))
        message = msgspec.structs.replace(message, address=address)
        outcome = await self.send_one(message, settings, exchange)
        return without_secrets(outcome, self.secrets(message, settings))

    def refusal(self, answer: HTTPAnswer) -> Outcome:
        """What an answer means whose body says nothing of use.

        Behind a server error other than 503 a message may be on its way. That matters where a second one costs.
        """
        is_doubtful = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if is_doubtful and answer.status != HTTPStatus.SERVICE_UNAVAILABLE and self.on_unknown == "park":
            return Unknown(f"http_{answer.status}", answer.text())
        return refused(answer) or Unknown("odd_answer", answer.text())


async def one_by_one(
    batch: Sequence[Message], send: Callable[[Message], Awaitable[Outcome]], *, at_once: int = AT_ONCE
) -> list[Outcome]:
    """Each message by itself, so many at a time; outcomes in the order of the batch."""
    places = asyncio.Semaphore(at_once)

    async def one(message: Message) -> Outcome:
        async with places:
            try:
                return await send(message)
            except Exception as error:  # noqa: BLE001 - a mistake of ours with one message must not harm the others
                return Unknown("error", f"a mistake in the channel: {type(error).__name__}")

    return await asyncio.gather(*[one(message) for message in batch])


async def post(
    exchange: Exchange,
    url: str,
    content: Any,
    read: Callable[[HTTPAnswer], Outcome],
    *,
    headers: Mapping[str, str] | None = None,
    form: bool = False,
) -> Outcome:
    """One POST of JSON, or of a form; `read` says what an answer means.

    What cannot be written down fails before anything has left.
    """
    try:
        body = urlencode(content).encode() if form else msgspec.json.encode(content)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        return Failed("malformed", f"the message cannot be encoded: {type(error).__name__}")
    kind = "application/x-www-form-urlencoded" if form else "application/json; charset=utf-8"
    answer = await call(exchange, "POST", url, data=body, headers={"Content-Type": kind, **(headers or {})})
    return read(answer) if isinstance(answer, HTTPAnswer) else answer


def without_secrets(outcome: Outcome, secrets: Iterable[str]) -> Outcome:
    """The same outcome, to be shown to anybody."""
    if isinstance(outcome, Sent | Delivered):
        return outcome
    code, message = outcome.code, outcome.message
    # The longest first: one may hold another.
    for secret in sorted({secret for secret in secrets if len(secret) >= SHORTEST_SECRET}, key=len, reverse=True):
        code, message = _hide(code, secret), _hide(message, secret)
    return msgspec.structs.replace(outcome, code=code, message=_storable(message))


def _hide(text: str, secret: str) -> str:
    text = text.replace(secret, HIDDEN)
    # A text that was cut may end within the secret.
    for length in range(len(secret) - 1, SHORTEST_SECRET - 1, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + HIDDEN
    return text


def _storable(text: str) -> str:
    """PostgreSQL keeps no NUL, and UTF-8 has no half of a pair."""
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")


def text_of(message: Message) -> str:
    """Title and body under each other, where there are both."""
    return "\n".join(part for part in (message.title, message.body) if part.strip())


def length(text: str) -> int:
    """In UTF-16 units, the longest way in which any of the providers counts."""
    return len(text) + sum(character > "\uffff" for character in text)


def cut(text: str, most: int) -> str:
    """The beginning of a text that is too long, and an ellipsis."""
    if length(text) <= most:
        return text
    kept, room = 0, most - 1
    for character in text:
        room -= 2 if character > "\uffff" else 1
        if room < 0:
            break
        kept += 1
    return text[:kept].rstrip() + "…"


def phone_number(address: str) -> str:
    """A number in E.164, without what people write between the digits."""
    number = _BETWEEN_DIGITS.sub("", address.strip())
    if not _PHONE.fullmatch(number):
        raise InvalidAddress('a phone number is written with its country, such as "+5511987654321"')
    return number


def origin(url: str) -> str:
    """Scheme, host and port, in small letters."""
    return "/".join(url.split("/", 3)[:3]).lower()


def fields(value: Any) -> Mapping[str, Any]:
    """A JSON object, or an empty one where the provider says something else."""
    return value if isinstance(value, dict) else {}


def number(value: Any) -> int | None:
    return value if type(value) is int else None


def words(value: Any) -> str:
    """A text by the provider, as much of it as is kept."""
    return _storable(value)[:MOST_TEXT] if isinstance(value, str) else ""


def provider_id(*parts: Any) -> str | None:
    """What names a message at the provider; None if one of its parts is missing or is no name."""
    are_names = all(isinstance(part, str) and _PROVIDER_ID.fullmatch(part) for part in parts)
    return ":".join(parts) if are_names else None


def wait(said: Any, headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, as the body says; otherwise, as the header does."""
    if type(said) in (int, float) and said >= 0:
        return float(min(said, LONGEST_WAIT))
    return retry_after(headers)


def transition(kind: Refusal, code: Any, message: str, answer: HTTPAnswer, said: Any = None) -> Outcome:
    """A refusal with the provider's own code; one that may be tried again says when."""
    if kind is Retryable:
        return Retryable(str(code), message, after=wait(said, answer.headers))
    return kind(str(code), message)
