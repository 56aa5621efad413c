"""The channel between a supervisor and one of its children: JSON lines over a socket pair."""

import asyncio
import socket

import msgspec

from sereno.telemetry.metrics import Gauges, MetricTally

# Bytes of one message.
LINE_LIMIT = 4 * 1024 * 1024


class ChildHello(msgspec.Struct, tag=True):
    """From a child: the id of its session, whose lease the supervisor renews from now on."""

    session: int


class ChildFigures(msgspec.Struct, tag=True):
    """From a child, twice a second while its loop runs: whether it is ready, its counts and gauges."""

    ready: bool
    tally: MetricTally
    gauges: Gauges


class LeaseRenewed(msgspec.Struct, tag=True):
    """From the supervisor: the lease is renewed until `until` of the boot clock. Without another renewal, stop then."""

    session: int
    until: float


class LeaseGone(msgspec.Struct, tag=True):
    """From the supervisor: the session was declared dead."""

    session: int


class StopChild(msgspec.Struct, tag=True):
    """From the supervisor: drain and stop; with `hurry`, release running jobs at once."""

    hurry: bool


FromChild = ChildHello | ChildFigures
FromSupervisor = LeaseRenewed | LeaseGone | StopChild
_from_child = msgspec.json.Decoder(FromChild)
_from_supervisor = msgspec.json.Decoder(FromSupervisor)


class ChildChannel:
    """One end of the channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def on(cls, end: socket.socket) -> "ChildChannel":
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end, limit=LINE_LIMIT))

    def send(self, message: FromChild | FromSupervisor) -> None:
        """Send a message without waiting. Messages are small; unread ones are dropped when the channel closes."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def from_child(self) -> FromChild | None:
        """Return the next message, or None when the child is gone."""
        line = await self._line()
        return _from_child.decode(line) if line else None

    async def from_supervisor(self) -> FromSupervisor | None:
        """Return the next message, or None when the supervisor is gone."""
        line = await self._line()
        return _from_supervisor.decode(line) if line else None

    async def _line(self) -> bytes:
        try:
            return await self._reader.readline()
        except (ConnectionError, ValueError):
            return b""

    def close(self) -> None:
        self._writer.close()
