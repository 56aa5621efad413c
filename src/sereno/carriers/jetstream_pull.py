"""Receives the messages of one queue from the pull consumer of its stream."""

import asyncio
from collections import deque
from contextlib import suppress
from time import monotonic

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

# Seconds between two requests for messages that the server ends at once.
SHORTEST_WAIT = 0.1


class Pull:
    """Receives the messages of one queue. At most one request for messages is open at the server."""

    def __init__(self, client: Client, subject: str, stream: str) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._subject = subject
        self._stream = stream
        self._received: deque[Msg] = deque()
        self._arrived = asyncio.Event()
        # Messages that the server still owes to the open request, and when that request ends.
        self._owed = 0
        self._ends = 0.0

    async def open(self) -> None:
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._on_message, pending_bytes_limit=-1, pending_msgs_limit=-1
        )

    async def close(self) -> None:
        """Give back what was received and not fetched; the server delivers nothing more."""
        await self._subscription.unsubscribe()
        await self._client.flush()
        while self._received:
            await self._received.popleft().nak()

    async def _on_message(self, message: Msg) -> None:
        if message.headers and "Status" in message.headers and not message.reply:
            # The request has ended: no more messages, expired, or the consumer is gone.
            if message.headers["Status"] != "100":
                self._owed = 0
        else:
            self._owed = max(0, self._owed - 1)
            self._received.append(message)
        self._arrived.set()

    async def fetch(self, most: int, wait: float) -> list[Msg]:
        end = monotonic() + wait
        while not self._received:
            now = monotonic()
            if now >= end:
                break
            if not self._owed or now >= self._ends:
                request = {"batch": most, "expires": int((end - now) * 1e9)}
                self._owed, self._ends = most, end
                await self._client.publish(self._subject, msgspec.json.encode(request), self._inbox)
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(end - now):
                    await self._arrived.wait()
            if (
                not self._received
                and not self._owed
                and self._client.is_connected
                and monotonic() - now < SHORTEST_WAIT
            ):
                # The server ended the request at once: do not ask again in a tight loop.
                await asyncio.sleep(SHORTEST_WAIT)
        # All of them: they were requested, and count as held by this worker.
        messages = list(self._received)
        self._received.clear()
        return messages
