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
from sereno.channels.http import HTTPResponse, call, refused
from sereno.channels.outcome import Failed, Invalid, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.notifications import fan_out

# Recipients in a step of a fan-out, in the workers of the test: few, so that a crash interrupts a fan-out.
STEP = int(os.environ.get("TEST_STEP", fan_out.RECIPIENTS_PER_STEP))
fan_out.RECIPIENTS_PER_STEP = STEP


@dataclass(frozen=True)
class Offer:
    """The payload of the event."""

    code: str
    region: str
    amount: int


class Carrier(Channel):
    """Sends batches to the provider below."""

    name = "carrier"
    batch = min(100, STEP // 2)
    at_once = 8
    delays = (0.2,) * 40
    receipts_after = 0.5
    receipts_batch = 100

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        reply = await self._call(exchange, "/messages", [[message.delivery, message.address] for message in batch])
        if not isinstance(reply, list):
            return [reply] * len(batch)
        return [_outcome(*each) for each in reply]

    async def receipts(self, ids: Sequence[str], exchange: Exchange) -> Sequence[Receipt]:
        reply = await self._call(exchange, "/receipts", list(ids))
        if not isinstance(reply, list):
            raise ConnectionError("no receipts now")
        return [Receipt(provider_id=name, outcome=outcome, id=number) for name, outcome, number in reply]

    async def _call(self, exchange: Exchange, path: str, body: list[Any]) -> list[Any] | Outcome:
        response = await call(exchange, "POST", os.environ["TEST_PROVIDER"] + path, json=body)
        if not isinstance(response, HTTPResponse):
            return response
        found: list[Any] = response.json()
        return refused(response) or found


def _outcome(status: str, name: str) -> Outcome:
    match status:
        case "taken":
            return Sent(name)
        case "busy":
            return Retryable("busy")
        case "gone":
            return Invalid("gone")
        case "never":
            return Failed("never")
        case _:
            return Unknown("unexpected status")


app = Sereno()
carrier = Carrier()

# One event with one channel, one with two.
offer_made = app.event("offer.made", Offer, channels=[carrier], category="offers")
offer_closed = app.event("offer.closed", Offer, channels=[carrier, in_app], category="offers")


@offer_made.template()
@offer_closed.template()
def render(offer: Offer, to: Recipient) -> Content:
    return Content(f"{offer.code} for {to.key}")


class Provider:
    """Sometimes slow; refuses some messages, and accepts some without a response."""

    def __init__(self, log: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._rng = random.Random(5)
        self._names = 0

    async def messages(self, request: web.Request) -> web.Response:
        at = time.time()
        messages = await request.json()
        fault = self._fault()
        if fault in ("429", "500"):
            self._note(at, [("refused", delivery, "") for delivery, _ in messages])
            return web.Response(status=int(fault), headers={"Retry-After": "0"})
        statuses = [(self._status(address), delivery, self._name()) for delivery, address in messages]
        self._note(at, statuses)
        await self._delay_or_cut(fault, request)
        return web.json_response([(status, name) for status, _, name in statuses])

    async def receipts(self, request: web.Request) -> web.Response:
        """Return the same receipt for a name on every request, but only for a part of the names."""
        at, fault = time.time(), self._fault()
        if fault in ("429", "500"):
            return web.Response(status=int(fault))
        names = [name for name in await request.json() if self._rng.random() < 0.8]
        found = [(name, _receipt(int(name[1:])), f"r{name}") for name in names]
        self._note(at, [("receipt", name, outcome) for name, outcome, _ in found])
        await self._delay_or_cut(fault, request)
        return web.json_response(found)

    def _fault(self) -> str:
        return self._rng.choices(["none", "slow", "cut", "429", "500"], [80, 6, 6, 4, 4])[0]

    def _status(self, address: str) -> str:
        if address.startswith(("gone", "never")):
            return address.partition(":")[0]
        return "busy" if self._rng.random() < 0.03 else "taken"

    def _name(self) -> str:
        self._names += 1
        return f"p{self._names}"

    async def _delay_or_cut(self, fault: str, request: web.Request) -> None:
        if fault == "slow":
            await asyncio.sleep(self._rng.uniform(0.2, 1.5))
        if fault == "cut" and request.transport is not None:
            request.transport.abort()

    def _note(self, at: float, entries: Sequence[tuple[str, Any, str]]) -> None:
        """Append the entries in one write, and sync them to disk before the response."""
        os.write(self._log, b"".join(json.dumps([at, *each]).encode() + b"\n" for each in entries))
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
