"""An application with a channel whose provider is a list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    """Stores the messages; `answers`: outcome by address, `said`: receipts to return, `asked`: requested ids."""

    name = "pager"
    batch = 10
    delays = (60.0, 120.0)

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.answers: dict[str, Outcome] = {}
        self.said: list[Receipt] = []
        self.asked: list[str] = []
        self.accounts: list[dict[str, object]] = []

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        self.sent += batch
        self.accounts.append(dict(exchange.account))
        return [self.answers.get(message.address, Sent(f"p{message.delivery}")) for message in batch]

    async def receipts(self, ids: Sequence[str], exchange: Exchange) -> Sequence[Receipt]:  # noqa: ARG002 - the contract
        self.asked += ids
        return [receipt for receipt in self.said if receipt.provider_id in ids]

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:  # noqa: ARG002 - see above
        return self.said


@pytest.fixture
def pager() -> Pager:
    return Pager()


States = Callable[[], list[tuple[Any, ...]]]


@pytest.fixture
def states(connection: psycopg.Connection) -> States:
    """Recipient, channel, state and reason of every delivery."""

    def read() -> list[tuple[Any, ...]]:
        return connection.execute(
            "select key, channel, state, reason from sereno.deliveries "
            "join sereno.recipients on recipients.id = recipient_id order by key, channel, deliveries.id"
        ).fetchall()

    return read
