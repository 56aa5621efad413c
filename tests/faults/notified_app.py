"""Both ends of the notifications fault test: the application that sends, and the provider that receives.

`python -m tests.faults.notified_app` is the provider, in its own process. It writes every message to its log, on disk,
before it responds; so the log shows what was really received, independently of the database.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from sereno import Channel, Content, Recipient, Sereno, in_app
from sereno.channels.contract import Exchange, Message
from sereno.channels.http import HTTPAnswer, call, refused
from sereno.channels.outcome import Failed, Invalid, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.notifications import fan_out

# In a worker of the storm alone: so short that a crash finds a fan-out half-way.
if "TEST_PROVIDER" in os.environ:
    fan_out.STEP = 500


@dataclass(frozen=True)
class Offer:
    """The payload of the event."""

    code: str
    region: str
    amount: int


class Carrier(Channel):
    """Posts batches to the provider below."""

    name = "carrier"
    batch = 100
    at_once = 8
    delays = (0.2,) * 40
    receipts_after = 0.5
    receipts_batch = 100

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        said = await self._ask(exchange, "/messages", [[message.delivery, message.address] for message in batch])
        if not isinstance(said, list):
            return [said] * len(batch)
        return [_outcome(*each) for each in said]

    async def receipts(self, ids: Sequence[str], exchange: Exchange) -> Sequence[Receipt]:
        said = await self._ask(exchange, "/receipts", list(ids))
        if not isinstance(said, list):
            raise ConnectionError("no receipts now")
        return [Receipt(provider_id=name, outcome=outcome, id=number) for name, outcome, number in said]

    async def _ask(self, exchange: Exchange, path: str, what: list[Any]) -> list[Any] | Outcome:
        answer = await call(exchange, "POST", os.environ["TEST_PROVIDER"] + path, json=what)
        if not isinstance(answer, HTTPAnswer):
            return answer
        found: list[Any] = answer.json()
        return refused(answer) or found


def _outcome(said: str, name: str) -> Outcome:
    match said:
        case "taken":
            return Sent(name)
        case "busy":
            return Retryable("busy")
        case "gone":
            return Invalid("gone")
        case "never":
            return Failed("never")
        case _:
            return Unknown("nonsense")


app = Sereno()
carrier = Carrier()

# One by one channel, one by two.
offer_made = app.event("offer.made", Offer, channels=[carrier], category="offers")
offer_closed = app.event("offer.closed", Offer, channels=[carrier, in_app], category="offers")


@offer_made.template()
@offer_closed.template()
def words(offer: Offer, to: Recipient) -> Content:
    return Content(f"{offer.code} for {to.key}")


class Provider:
    """Sometimes slow; refuses some messages, and accepts some without a response."""

    def __init__(self, log: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._chance = random.Random(5)
        self._names = 0

    async def messages(self, request: web.Request) -> web.Response:
        at = time.time()
        messages = await request.json()
        mood = self._mood()
        if mood in ("429", "500"):
            self._note(at, [("refused", delivery, "") for delivery, _ in messages])
            return web.Response(status=int(mood), headers={"Retry-After": "0"})
        said = [(self._say(address), delivery, self._name()) for delivery, address in messages]
        self._note(at, said)
        await self._answer_slowly(mood, request)
        return web.json_response([(word, name) for word, _, name in said])

    async def receipts(self, request: web.Request) -> web.Response:
        """Return the same receipt for a name on every request; none yet for some."""
        at, mood = time.time(), self._mood()
        if mood in ("429", "500"):
            return web.Response(status=int(mood))
        names = [name for name in await request.json() if self._chance.random() < 0.8]
        said = [(name, _receipt(int(name[1:])), f"r{name}") for name in names]
        self._note(at, [("receipt", name, outcome) for name, outcome, _ in said])
        await self._answer_slowly(mood, request)
        return web.json_response(said)

    def _mood(self) -> str:
        return self._chance.choices(["good", "slow", "cut", "429", "500"], [80, 6, 6, 4, 4])[0]

    def _say(self, address: str) -> str:
        if address.startswith(("gone", "never")):
            return address.partition(":")[0]
        return "busy" if self._chance.random() < 0.03 else "taken"

    def _name(self) -> str:
        self._names += 1
        return f"p{self._names}"

    async def _answer_slowly(self, mood: str, request: web.Request) -> None:
        if mood == "slow":
            await asyncio.sleep(self._chance.uniform(0.2, 1.5))
        if mood == "cut" and request.transport is not None:
            request.transport.abort()

    def _note(self, at: float, said: Sequence[tuple[str, Any, str]]) -> None:
        """Append in one write, and sync to disk before the response."""
        os.write(self._log, b"".join(json.dumps([at, *each]).encode() + b"\n" for each in said))
        os.fsync(self._log)


def _receipt(number: int) -> str:
    """Most messages arrive; for a few the provider reports a failure later."""
    return {3: "failed", 5: "bounced", 7: "read", 11: "invalid", 13: "retry"}.get(number % 40, "delivered")


async def provide(log: str) -> None:
    provider = Provider(log)
    application = web.Application()
    application.add_routes([web.post("/messages", provider.messages), web.post("/receipts", provider.receipts)])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(f"http://{host}:{port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(provide(sys.argv[1]))
