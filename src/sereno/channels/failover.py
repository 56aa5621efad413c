"""Two providers behind one channel: a message that the first one certainly did not accept is sent by the second."""

from collections.abc import Mapping, Sequence
from typing import Any

from sereno.channels.contract import Callback, Channel, Exchange, Message
from sereno.channels.outcome import Down, Outcome, Receipt, Retryable
from sereno.errors import ConfigurationError, RejectedCallback


class Failover(Channel):
    """`Failover(Twilio(), OtherSms())`: one channel with the name, limits and policy of the first.

    Accounts: settings under `first` and `second`; other settings apply to both. The second provider gets the same key.
    A message that may have been sent is never passed to it.
    """

    def __init__(self, first: Channel, second: Channel) -> None:
        if first.name != second.name:
            raise ConfigurationError(
                f"a failover needs two providers of one channel, not {first.name} and {second.name}"
            )
        self._providers = (first, second)
        for name in (
            "batch",
            "rate",
            "at_once",
            "delays",
            "on_unknown",
            "receipts_after",
            "receipts_for",
            "receipts_batch",
            "largest",
        ):
            setattr(self, name, getattr(first, name))
        self.name = first.name  # type: ignore[misc]  # it replaces the first channel
        self.batch = min(first.batch, second.batch)  # type: ignore[misc]

    def check_address(self, address: str) -> str:
        return self._providers[0].check_address(address)

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        first, second = self._providers
        outcomes = list(await self._through("first", first, batch, exchange))
        unsent = [position for position, outcome in enumerate(outcomes) if isinstance(outcome, Retryable | Down)]
        if unsent:
            again = await self._through("second", second, [batch[position] for position in unsent], exchange)
            for position, outcome in zip(unsent, again, strict=True):
                outcomes[position] = outcome
        return outcomes

    async def receipts(self, ids: Sequence[str], exchange: Exchange) -> Sequence[Receipt]:
        """Request receipts from the first provider, and the missing ones from the second."""
        first, second = self._providers
        receipts = list(await first.receipts(ids, _exchange("first", exchange)))
        reported = {receipt.provider_id for receipt in receipts}
        rest = [each for each in ids if each not in reported]
        return [*receipts, *(await second.receipts(rest, _exchange("second", exchange)) if rest else ())]

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        try:
            return self._providers[0].webhook(callback, _settings("first", account))
        except (RejectedCallback, ConfigurationError):
            return self._providers[1].webhook(callback, _settings("second", account))

    async def read_callback(self, callback: Callback, exchange: Exchange) -> Sequence[Receipt]:
        try:
            return await self._providers[0].read_callback(callback, _exchange("first", exchange))
        except (RejectedCallback, ConfigurationError):
            return await self._providers[1].read_callback(callback, _exchange("second", exchange))

    async def _through(
        self, which: str, provider: Channel, batch: Sequence[Message], exchange: Exchange
    ) -> Sequence[Outcome]:
        return await provider.send(batch, _exchange(which, exchange))


def _settings(which: str, account: Mapping[str, Any]) -> dict[str, Any]:
    shared = {name: value for name, value in account.items() if name not in ("first", "second")}
    return {**shared, **account.get(which, {})}


def _exchange(which: str, exchange: Exchange) -> Exchange:
    return exchange.with_account(_settings(which, exchange.account))
