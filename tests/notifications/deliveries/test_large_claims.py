"""A job claims several batches at once from a fast channel; few deliveries are `sending` on any other."""

from collections.abc import Sequence

import psycopg
import pytest

from sereno import Sereno
from sereno.channels.contract import Exchange, Message
from sereno.channels.outcome import Down, Outcome, Retryable
from sereno.notifications.deliveries import sender
from tests.facts import one
from tests.notifications.conftest import Pager, States, Tender

SENDING = "select count(*) from sereno.deliveries where state = 'sending'"
NEVER, ALWAYS = 0.0, float("inf")


class ObservedPager(Pager):
    """Notes for each call the number of its messages, and of all deliveries that are `sending`.

    `slow_call`: the number of a call that is too slow for a large claim.
    """

    batch = 2

    def __init__(self, connection: psycopg.Connection, patch: pytest.MonkeyPatch, slow_call: int | None = None) -> None:
        super().__init__()
        self._connection, self._patch, self._slow_call = connection, patch, slow_call
        self.calls: list[tuple[int, int]] = []

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        self.calls.append((len(batch), one(self._connection, SENDING)))
        if len(self.calls) == self._slow_call:
            self._patch.setattr(sender, "FAST_CALL", NEVER)
        return await super().send(batch, exchange)


class ParkingPager(ObservedPager):
    """Unknown outcomes wait for an operator."""

    on_unknown = "park"


async def send(app: Sereno, pager: Pager, count: int) -> None:
    """Send one event to `count` recipients, in one job."""
    names = [f"u{number}" for number in range(count)]
    for name in names:
        await app.recipients.aupsert(name, {pager.name: name})
    published = app.event("tender.published", Tender, channels=[pager])
    await app.notifications.fanout.fan_out(await published.anotify(Tender("T1"), to=names))
    await app.notifications.sender.deliver(1, pager.name, "", -2)


async def test_a_fast_channel_gets_the_batches_of_a_claim_in_separate_calls(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, states: States
) -> None:
    monkeypatch.setattr(sender, "FAST_CALL", ALWAYS)
    pager = ObservedPager(connection, monkeypatch)
    pager.outcomes = {"u3": Retryable("busy")}
    await send(app, pager, 11)
    # The first claim is one batch, because it is not known yet that the channel is fast.
    assert pager.calls == [(2, 2), (2, 8), (2, 8), (2, 8), (2, 8), (1, 1)]
    assert sorted(row[2] for row in states()) == ["pending", *["sent"] * 10]


async def test_a_slow_channel_gets_one_batch_per_claim(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FAST_CALL", NEVER)
    pager = ObservedPager(connection, monkeypatch)
    await send(app, pager, 7)
    assert pager.calls == [(2, 2), (2, 2), (2, 2), (1, 1)]


async def test_outcomes_of_a_channel_that_becomes_slow_are_recorded_before_its_next_call(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, states: States
) -> None:
    monkeypatch.setattr(sender, "FAST_CALL", ALWAYS)
    pager = ObservedPager(connection, monkeypatch, slow_call=3)
    await send(app, pager, 12)
    assert pager.calls == [(2, 2), (2, 8), (2, 8), (2, 4), (2, 2), (2, 2)]
    assert [row[2] for row in states()] == ["sent"] * 12


async def test_a_channel_that_parks_unknown_outcomes_gets_one_batch_per_claim(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FAST_CALL", ALWAYS)
    pager = ParkingPager(connection, monkeypatch)
    await send(app, pager, 5)
    assert pager.calls == [(2, 2), (2, 2), (1, 1)]


async def test_a_channel_that_does_not_work_gets_no_more_batches_of_the_claim(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, states: States
) -> None:
    monkeypatch.setattr(sender, "FAST_CALL", ALWAYS)
    pager = ObservedPager(connection, monkeypatch)
    pager.outcomes = {"u3": Down("bad_credentials")}
    await send(app, pager, 10)
    assert pager.calls == [(2, 2), (2, 8)]
    assert [row[2] for row in states()] == ["sent"] * 3 + ["pending"] * 7
    assert one(connection, "select sum(attempts) from sereno.deliveries") == 3
    assert one(connection, "select reason from sereno.channel_pauses") == "bad_credentials: "
