"""What a channel is: one small class that sends a batch of messages and says what became of each.

The engine owns everything else: when and to whom, retries, rates, batches, receipts, the health of addresses. A channel
reads no database, keeps no state between batches beside connections, and never raises for one message: it answers.

    class Pager(Channel):
        name = "pager"
        batch = 50

        async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
            pages = [{"to": message.address, "text": message.body} for message in batch]
            answer = await call(exchange, "POST", "https://…", json=pages)
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
    """Another channel for those whom the first did not reach: so many seconds later, unless it had got so far."""

    first: str
    second: str
    after: float
    unless: Literal["sent", "delivered", "read"] = "delivered"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery, ready to be sent.

    `key`: the same for every try, for providers that know two sends of one message apart from two messages.
    `keys`: what belongs to the address beside its text (keys of a Web Push subscription, secrets of a webhook).
    `data`: the event's payload. `options`: what the template says for this channel alone.
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
    # Where a recipient says "no more of these"; for mails, also the header.
    unsubscribe_url: str | None = None


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a provider made to us: the body as it came, headers in small letters."""

    body: bytes
    headers: Mapping[str, str]
    query: Mapping[str, str] = {}
    url: str = ""


class Channel:
    """One way to reach people. Subclasses set `name` and write `send`; the rest has defaults."""

    name: ClassVar[str]
    # So many messages go into one call of `send`.
    batch: ClassVar[int] = 1
    # So many messages a second the provider takes, over all workers.
    rate: ClassVar[Rate | None] = None
    # So many calls of `send` at once, over all workers.
    at_once: ClassVar[int | None] = None
    # Seconds before each new try; when they are used up, it is a dead letter.
    delays: ClassVar[tuple[float, ...]] = (60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0)
    # What to do when nobody can say whether it was sent: send again, or wait for a person.
    on_unknown: ClassVar[Literal["retry", "park"]] = "retry"
    # Seconds after sending when receipts can be asked for, and for how long; None: nobody can be asked.
    receipts_after: ClassVar[float | None] = None
    receipts_for: ClassVar[float] = 24 * 3600.0
    # So many receipts are asked for at once.
    receipts_batch: ClassVar[int] = 300
    # The largest message, in bytes, that the provider takes; for the lint of templates.
    largest: ClassVar[int | None] = None

    def then(
        self, other: "Channel | str", *, after: Duration, unless: Literal["sent", "delivered", "read"] = "delivered"
    ) -> "Chain":
        """Another channel for those whom this one has not reached after so long: `expo.then(sms, after="20m")`."""
        return Chain([self]).then(other, after=after, unless=unless)

    def check_address(self, address: str) -> str:
        """The address as it is stored; `sereno.errors.InvalidAddress` for one that it can never reach."""
        return address

    async def send(self, batch: Sequence[Message], exchange: "Exchange") -> Sequence[Outcome]:
        """One outcome for each message, in the same order."""
        raise NotImplementedError

    async def receipts(self, ids: Sequence[str], exchange: "Exchange") -> Sequence[Receipt]:  # noqa: ARG002 - by subclasses
        """What has become of them, as far as the provider says; those it says nothing of are left out."""
        return ()

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:  # noqa: ARG002 - by subclasses
        """What a provider tells by itself. RejectedCallback, if it is not the provider who tells."""
        raise RejectedCallback(f"the channel {self.name} takes no callbacks")


class Chain:
    """A channel, and what is tried when it did not reach somebody. Made by `Channel.then`."""

    def __init__(self, links: "Sequence[Channel | str]", steps: Sequence[EscalationStep] = ()) -> None:
        self.links = tuple(links)
        self.steps = tuple(steps)

    def then(
        self, other: "Channel | str", *, after: Duration, unless: Literal["sent", "delivered", "read"] = "delivered"
    ) -> "Chain":
        first, second = (link if isinstance(link, str) else link.name for link in (self.links[-1], other))
        return Chain([*self.links, other], [*self.steps, EscalationStep(first, second, seconds(after), unless)])


# Settings that say where a provider is.
PLACES = ("url", "host")


class Exchange:
    """What a channel is given to talk with: one HTTP session, and the account of whoever pays for the message.

    `account`: credentials and settings of this channel for this tenant. `own`: it is the tenant's, not the house's.
    `private`: whether addresses on private networks may be called, by webhooks that people enter themselves.
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

    @property
    def http(self) -> Any:
        """An `aiohttp.ClientSession`, opened when first used: no redirects are followed by channels."""
        if self._session is None:
            import aiohttp  # noqa: PLC0415 - half a second that only those pay who send by HTTP

            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self.timeout))
        return self._session

    @property
    def stands_alone(self) -> bool:
        """Whether a tenant chose where the provider is: what the channel was constructed with must not go there."""
        return self.own and any(self.account.get(name) for name in PLACES)

    def over(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """The account's settings above those of a channel's constructor, unless it stands alone. None says nothing."""
        said = {name: value for name, value in self.account.items() if value is not None}
        return said if self.stands_alone else {**defaults, **said}

    def with_account(self, account: Mapping[str, Any]) -> "Exchange":
        """The same connections for another account."""
        other = Exchange(account, own=self.own, private=self.private, timeout=self.timeout)
        other._session = self.http
        return other

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
