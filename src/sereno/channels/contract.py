"""The channel contract: a class that sends a batch of messages and returns the outcome of each.

The engine does everything else: recipients, timing, retries, rates, batches, receipts, deactivated addresses. A channel
reads no database, holds no state between batches except connections, and never raises for a message: it returns an
outcome.

    class Pager(Channel):
        name = "pager"
        batch = 50

        async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
            pages = [{"to": message.address, "text": message.body} for message in batch]
            response = await call(exchange, "POST", "https://…", json=pages)
            ...
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

import msgspec

from sereno.channels.outcome import Outcome, Receipt
from sereno.duration import Duration, seconds
from sereno.errors import RejectedCallback
from sereno.jobs.limits.limit import Rate

# The built-in channel: the inbox of a recipient.
IN_APP = "in_app"


class EscalationStep(msgspec.Struct, frozen=True):
    """After `after` seconds, channel `second` sends to recipients whose delivery by `first` did not reach `unless`."""

    first: str
    second: str
    after: float
    unless: Literal["sent", "delivered", "read"] = "delivered"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery, ready to be sent.

    `key`: the idempotency key, the same in every attempt. `keys`: data that belongs to the address (the keys of a Web
    Push subscription, the secrets of a webhook). `data`: the event's payload. `options`: values from the template that
    only this channel understands.
    """

    delivery: int
    key: str
    address: str
    keys: Mapping[str, Any] = {}
    title: str = ""
    body: str = ""
    html: str | None = None
    data: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    event: str = ""
    recipient: str = ""
    tenant: str | None = None
    locale: str | None = None
    attempt: int = 1
    # The one-click unsubscribe link; in emails also in the header.
    unsubscribe_url: str | None = None
    # The link to the recipient's own preferences.
    preferences_url: str | None = None


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's request to the webhook: the raw body, header names in lower case."""

    body: bytes
    headers: Mapping[str, str]
    query: Mapping[str, str] = {}
    url: str = ""


class Channel:
    """One way to send messages. Subclasses set `name` and implement `send`; the rest has defaults."""

    name: ClassVar[str]
    # Messages per call of `send`.
    batch: ClassVar[int] = 1
    # Rate limit of the provider in messages, over all workers.
    rate: ClassVar[Rate | None] = None
    # Concurrent calls of `send`, over all workers.
    at_once: ClassVar[int | None] = None
    # Seconds before each retry; after the last one the delivery is dead.
    delays: ClassVar[tuple[float, ...]] = (60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0)
    # What happens when it is unknown whether a message was sent: "retry" sends it again, "park" waits for an operator.
    on_unknown: ClassVar[Literal["retry", "park"]] = "retry"
    # Seconds after sending from which receipts can be requested, and until when; None: they cannot be requested.
    receipts_after: ClassVar[float | None] = None
    receipts_for: ClassVar[float] = 24 * 3600.0
    # Receipts per request.
    receipts_batch: ClassVar[int] = 300
    # Largest message in bytes that the provider accepts; `sereno template lint` reports templates that exceed it.
    largest: ClassVar[int | None] = None

    def then(
        self, other: "Channel | str", *, after: Duration, unless: Literal["sent", "delivered", "read"] = "delivered"
    ) -> "Chain":
        """Add a channel for recipients whom this one has not reached in time: `expo.then(sms, after="20m")`."""
        return Chain([self]).then(other, after=after, unless=unless)

    def check_address(self, address: str) -> str:
        """Return the address as it is stored; raise `sereno.errors.InvalidAddress` for one that cannot be reached."""
        return address

    async def send(self, batch: Sequence[Message], exchange: "Exchange") -> Sequence[Outcome]:
        """Send the messages. Return one outcome per message, in the same order."""
        raise NotImplementedError

    async def receipts(self, ids: Sequence[str], exchange: "Exchange") -> Sequence[Receipt]:  # noqa: ARG002 - by subclasses
        """Request receipts. Return those that the provider has; the others are omitted."""
        return ()

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:  # noqa: ARG002 - by subclasses
        """Return the receipts in a provider's request. Raise RejectedCallback if it is not from the provider."""
        raise RejectedCallback(f"the channel {self.name} does not accept callbacks")

    async def read_callback(self, callback: Callback, exchange: "Exchange") -> Sequence[Receipt]:
        """Return the receipts in a provider's request, as `webhook` reads them.

        A channel overrides it to request something before, such as the certificate that has signed the callback. After
        a ConnectionError, the provider is told to send the callback again.
        """
        return self.webhook(callback, exchange.account)


class Chain:
    """A channel and its escalation steps. Created by `Channel.then`."""

    def __init__(self, links: "Sequence[Channel | str]", steps: Sequence[EscalationStep] = ()) -> None:
        self.links = tuple(links)
        self.steps = tuple(steps)

    def then(
        self, other: "Channel | str", *, after: Duration, unless: Literal["sent", "delivered", "read"] = "delivered"
    ) -> "Chain":
        first, second = (link if isinstance(link, str) else link.name for link in (self.links[-1], other))
        return Chain([*self.links, other], [*self.steps, EscalationStep(first, second, seconds(after), unless)])


# Account settings that name the server of the provider.
SERVER_SETTINGS = ("url", "host", "token_uri")


class Exchange:
    """The HTTP session and the provider account with which a channel sends.

    `account`: credentials and settings of this channel for this tenant. `own`: the account is the tenant's, not the
    application's. `private`: whether user-entered webhooks may reach private networks.
    """

    def __init__(
        self,
        account: Mapping[str, Any] | None = None,
        *,
        own: bool = False,
        private: bool = False,
        timeout: float = 20.0,
    ) -> None:
        self.account: Mapping[str, Any] = account or {}
        self.own = own
        self.private = private
        self.timeout = timeout
        self._session: Any = None
        self._http2: Any = None

    @property
    def http(self) -> Any:
        """An `aiohttp.ClientSession`, opened on first use; channels follow no redirects."""
        if self._session is None:
            import aiohttp  # noqa: PLC0415 - half a second, needed only to send by HTTP

            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self.timeout))
        return self._session

    @property
    def http2(self) -> Any:
        """A `sereno.channels.http2.HTTP2Client`, opened on first use."""
        if self._http2 is None:
            from sereno.channels.http2 import HTTP2Client  # noqa: PLC0415 - it imports this module

            self._http2 = HTTP2Client()
        return self._http2

    @property
    def stands_alone(self) -> bool:
        """Whether a tenant chose the provider's server: the constructor's settings must not be sent there."""
        return self.own and any(self.account.get(name) for name in SERVER_SETTINGS)

    def over(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return `defaults` overridden by the account; only the account if it stands alone. None counts as not set."""
        settings = {name: value for name, value in self.account.items() if value is not None}
        return settings if self.stands_alone else {**defaults, **settings}

    def with_account(self, account: Mapping[str, Any]) -> "Exchange":
        """Return an exchange with the same connections for another account."""
        other = Exchange(account, own=self.own, private=self.private, timeout=self.timeout)
        other._session, other._http2 = self.http, self.http2
        return other

    async def close(self) -> None:
        session, self._session = self._session, None
        http2, self._http2 = self._http2, None
        for connections in (session, http2):
            if connections is not None:
                await connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
