"""A provider on this machine that speaks Expo's protocol at little cost: it shares the processor with what is measured.

It accepts every message and returns a ticket for each, then a receipt for each ticket. `sereno.testing.expo` checks
requests like the real service, and takes three times as long.
"""

import asyncio
import gzip
from itertools import count
from typing import cast

import msgspec

SEND = b"POST /--/api/v2/push/send "
RECEIPTS = b"POST /--/api/v2/push/getReceipts "
HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"


class Push(msgspec.Struct):
    """The part of a message that is needed for its ticket."""

    to: str
    title: str
    body: str


class ReceiptRequest(msgspec.Struct):
    ids: list[str]


_pushes = msgspec.json.Decoder(list[Push])
_request = msgspec.json.Decoder(ReceiptRequest)
_tickets = count(1)
_OK = {"status": "ok"}


class ExpoConnection(asyncio.Protocol):
    """One connection: requests with a Content-Length, one after another."""

    def __init__(self) -> None:
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(HEAD_END)) >= 0:
            head, start = self._received[:end], end + len(HEAD_END)
            length = _length(head)
            if len(self._received) < start + length:
                return
            body, self._received = self._received[start : start + length], self._received[start + length :]
            if self._transport is not None:
                self._transport.write(_respond(head, body))


def _length(head: bytes) -> int:
    _, _, rest = head.lower().partition(LENGTH)
    return int(rest.split(b"\r\n", 1)[0] or 0)


def _respond(head: bytes, body: bytes) -> bytes:
    content = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
    if head.startswith(SEND):
        tickets = [
            {"status": "ok", "id": f"{next(_tickets):08x}-0000-4000-8000-000000000000"} for _ in _pushes.decode(content)
        ]
        reply = msgspec.json.encode({"data": tickets})
    elif head.startswith(RECEIPTS):
        reply = msgspec.json.encode({"data": dict.fromkeys(_request.decode(content).ids, _OK)})
    else:
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(reply), reply)


async def provide(ended: asyncio.Event) -> None:
    """Print the address, and serve until the event is set."""
    server = await asyncio.get_running_loop().create_server(ExpoConnection, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}", flush=True)
    await ended.wait()
    server.close()
