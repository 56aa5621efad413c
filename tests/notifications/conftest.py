"""A channel that stores its messages in a list, and the states of deliveries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
import pytest

from sereno import Channel
from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.outcome import Outcome, Receipt, Sent


@dataclass(frozen=True)
class Tender:
    """The payload of the events in these tests."""

    code: str
    region: str = "RM"
    amount: int = 100


class Pager(Channel):
    """Stores its messages. `outcomes`: by address; `receipts_to_return`; `requested_ids`: of receipts."""

    name = "pager"
    batch = 10
    delays: ClassVar[tuple[float, ...]] = (60.0, 120.0)

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.outcomes: dict[str, Outcome] = {}
        self.receipts_to_return: list[Receipt] = []
        self.requested_ids: list[str] = []
        self.accounts: list[dict[str, object]] = []

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        self.sent += batch
        self.accounts.append(dict(exchange.account))
        return [self.outcomes.get(message.address, Sent(f"p{message.delivery}")) for message in batch]

    async def receipts(self, ids: Sequence[str], exchange: Exchange) -> Sequence[Receipt]:  # noqa: ARG002 - the contract
        self.requested_ids += ids
        return [receipt for receipt in self.receipts_to_return if receipt.provider_id in ids]

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:  # noqa: ARG002 - see above
        return self.receipts_to_return


@pytest.fixture
def pager() -> Pager:
    return Pager()


States = Callable[[], list[tuple[Any, ...]]]


@pytest.fixture
def states(connection: psycopg.Connection) -> States:
    """Returns a function that reads recipient, channel, state and reason of every delivery."""

    def read() -> list[tuple[Any, ...]]:
        return connection.execute(
            "select key, channel, state, reason from sereno.deliveries "
            "join sereno.recipients on recipients.id = recipient_id order by key, channel, deliveries.id"
        ).fetchall()

    return read
