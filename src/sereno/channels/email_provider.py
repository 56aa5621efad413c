"""Base of channels that send email by the HTTP API of a provider. All are named `email`: an application uses one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, ClassVar, TypeVar

import msgspec

from sereno.channels.contract import Exchange, Message
from sereno.channels.email_content import EmailContent, addr_spec, compose, mailbox
from sereno.channels.http import HTTPResponse, call
from sereno.channels.outcome import Failed, Invalid, Outcome, Retryable, Unknown
from sereno.channels.single_message import ChannelSettings, SingleMessageChannel, without_secrets
from sereno.errors import InvalidAddress

# Seconds to wait after a refusal for the quota of a day: the eight tries last until it is free again.
QUOTA_WAIT = 4 * 3600.0


class EmailProviderSettings(ChannelSettings, frozen=True, kw_only=True):
    """`sender`: "Name <name@example.com>", as verified by the provider. `reply_to`: a template may set another.

    `footer`: whether emails end with the links of their recipient.
    """

    sender: str = ""
    reply_to: str = ""
    footer: bool = True

    def __post_init__(self) -> None:
        try:
            for text in filter(None, (self.sender, self.reply_to)):
                mailbox(text)
        except InvalidAddress as error:
            raise ValueError(str(error)) from None


SettingsT = TypeVar("SettingsT", bound=EmailProviderSettings)


class EmailProvider(SingleMessageChannel[SettingsT]):
    """Email by a provider that takes one message per request. Subclasses implement `secrets` and `send_content`.

    `now`: the time against which signed callbacks are checked.
    """

    name: ClassVar[str] = "email"
    batch: ClassVar[int] = 20
    # Bytes of the texts; providers limit the encoded email.
    largest: ClassVar[int | None] = 10 * 1024 * 1024

    def __init__(self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC), **defaults: str | bool) -> None:
        super().__init__(**defaults)
        self._now = now

    def check(self, address: str, _settings: SettingsT, /) -> str:
        return addr_spec(address)

    async def send_one(self, message: Message, settings: SettingsT, exchange: Exchange, /) -> Outcome:
        content = self.content(message, settings)
        if not isinstance(content, EmailContent):
            return content
        return await self.send_content(content, settings, exchange)

    async def send_content(self, content: EmailContent, settings: SettingsT, exchange: Exchange, /) -> Outcome:
        raise NotImplementedError

    def content(self, message: Message, settings: SettingsT) -> EmailContent | Failed | Invalid:
        """Return the email, unless it is empty or too large: a refusal by the provider would stop its batch."""
        content = compose(message, mailbox(settings.sender), settings.reply_to or None, footer=settings.footer)
        if not isinstance(content, EmailContent):
            return content
        if not content.text and not content.html:
            return Failed("empty", "an email needs a title or a text")
        if self.largest is not None and (size := size_of(content)) > self.largest:
            return Failed("too_large", f"the texts have {size:,} bytes, at most {self.largest:,} are allowed")
        return content


class EmailBatchProvider(EmailProvider[SettingsT]):
    """Email by a provider that takes many messages per request. Subclasses implement `send_many`."""

    # Bytes of the texts in one request.
    largest_request: ClassVar[int] = 20 * 1024 * 1024

    async def send_many(
        self, contents: Sequence[EmailContent], settings: SettingsT, exchange: Exchange, /
    ) -> Sequence[Outcome]:
        """Send the emails in one request. Return one outcome for each, in order."""
        raise NotImplementedError

    async def send_all(self, batch: Sequence[Message], settings: SettingsT, exchange: Exchange, /) -> Sequence[Outcome]:
        composed = [self.content(message, settings) for message in batch]
        outcomes: dict[int, Outcome] = {
            position: content for position, content in enumerate(composed) if not isinstance(content, EmailContent)
        }
        waiting = [
            (position, content) for position, content in enumerate(composed) if isinstance(content, EmailContent)
        ]
        for group in self._groups(waiting):
            results = await self.send_many([content for _, content in group], settings, exchange)
            for (position, _), outcome in zip(group, results, strict=True):
                outcomes[position] = without_secrets(outcome, self.secrets(batch[position], settings))
        return [outcomes[position] for position in range(len(batch))]

    def _groups(self, waiting: Sequence[tuple[int, EmailContent]]) -> Iterator[list[tuple[int, EmailContent]]]:
        """Yield what fits into one request."""
        group: list[tuple[int, EmailContent]] = []
        total = 0
        for position, content in waiting:
            size = size_of(content)
            if group and total + size > self.largest_request:
                yield group
                group, total = [], 0
            group.append((position, content))
            total += size
        if group:
            yield group


async def post_json(
    exchange: Exchange, url: str, content: Any, headers: Mapping[str, str]
) -> HTTPResponse | Retryable | Unknown:
    """Send one POST. Emails can have megabytes, which aiohttp writes without blocking only from a file."""
    body = BytesIO(msgspec.json.encode(content))
    return await call(exchange, "POST", url, data=body, headers={"Content-Type": "application/json", **headers})


def size_of(content: EmailContent) -> int:
    return len(content.text.encode()) + len(content.html.encode())
