"""HTTP/2 to a provider: one connection to a server, and many requests on it at the same time.

A request is sent again, on another connection, only if the server says that it has not processed it: it refused the
stream, or announced the end of the connection before it. If the connection broke before the request was complete, it
can be retried; after that, the outcome is unknown.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from sereno.channels.http import LARGEST_RESPONSE, MOST_TEXT, HTTPResponse
from sereno.channels.outcome import Retryable, Unknown

if TYPE_CHECKING:
    from h2.events import Event

# Connections that one request tries, if servers end them without processing it.
MOST_TRIES = 3
# Seconds without a request after which a connection is replaced: something on the way may have forgotten it.
MOST_IDLE = 300.0
# Bytes: the header of a frame; and the largest frame, as we announce no other size (RFC 9113, section 4.2).
FRAME_HEADER, LARGEST_FRAME = 9, 16384
# Types of frames and codes of errors.
GOAWAY, REFUSED_STREAM = 7, 7

Ended = HTTPResponse | Retryable | Unknown


class _Stream:
    """One request. `ended`: its result; None if the server has not processed it."""

    def __init__(self, headers: list[tuple[str, str]], body: bytes) -> None:
        self.headers = headers
        self.body = body
        self.restart()

    def restart(self) -> None:
        self.is_complete = False
        self.ended: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()
        self._status, self._headers, self._content = 0, dict[str, str](), bytearray()

    def end(self, result: Ended | None) -> None:
        if not self.ended.done():
            self.ended.set_result(result)

    def lost(self, reason: str) -> Ended:
        """Return what is known of a request that gets no response."""
        return Unknown("no_response", reason) if self.is_complete else Retryable("connection_lost", reason)

    def receive_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        status = self._headers.pop(":status", "")
        self._status = int(status) if status.isascii() and status.isdigit() else 0

    def receive_data(self, data: bytes) -> None:
        self._content += data[: LARGEST_RESPONSE - len(self._content)]

    def finish(self) -> None:
        self.end(HTTPResponse(self._status, self._headers, bytes(self._content)))


class HTTP2Client:
    """Requests to servers, over one connection to each. It belongs to one event loop."""

    def __init__(self) -> None:
        self._current: dict[str, _Connection] = {}
        # Also those that are ending, until their last response.
        self._open: set[_Connection] = set()
        self._lock = asyncio.Lock()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Ended:
        """Send one request. A response with any status is returned."""
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        fixed = [(":method", "POST"), (":scheme", parts.scheme), (":authority", parts.netloc), (":path", path)]
        stream = _Stream([*fixed, *headers.items(), ("content-length", str(len(body)))], body)
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(timeout):
                for _ in range(MOST_TRIES):
                    connection = await self._connection(f"{parts.scheme}://{parts.netloc}")
                    result = await connection.send(stream)
                    if result is not None:
                        return result
                    stream.restart()
        except TimeoutError:
            if connection is not None:
                # It may be dead without a sign of it.
                connection.is_usable = False
            return stream.lost(f"no response in {timeout:g} s")
        except OSError as error:
            return Retryable("unreachable", (str(error) or type(error).__name__)[:MOST_TEXT])
        return Retryable("not_processed", "the server ended each connection before the request")

    async def close(self) -> None:
        for connection in list(self._open):
            await connection.close()
        self._current.clear()

    async def _connection(self, server: str) -> "_Connection":
        async with self._lock:
            connection = self._current.get(server)
            if connection is None or not connection.is_fresh():
                connection = self._current[server] = await _connect(server)
                self._open = {each for each in self._open if not each.is_over} | {connection}
            return connection


async def _connect(server: str) -> "_Connection":
    parts = urlsplit(server)
    context = None
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
    port = parts.port or (443 if context else 80)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    tls = writer.get_extra_info("ssl_object")
    if tls is not None and tls.selected_alpn_protocol() != "h2":
        writer.transport.abort()
        raise ConnectionError("the server does not speak HTTP/2")
    return _Connection(reader, writer)


class _Connection:
    """One connection. `is_usable`: it takes more requests. `is_over`: it has ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from h2.config import H2Configuration  # noqa: PLC0415 - an extra
        from h2.connection import H2Connection  # noqa: PLC0415 - the same

        # At the level DEBUG it would write every header, and so the credentials.
        logging.getLogger("hpack").setLevel(logging.INFO)
        self.is_usable, self.is_over = True, False
        self._reader, self._writer = reader, writer
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._streams: dict[int, _Stream] = {}
        # Until the server's settings arrive, it is unknown how many streams it allows.
        self._has_settings = False
        self._change = asyncio.Event()
        self._last_used = asyncio.get_running_loop().time()
        self._h2.initiate_connection()
        self._flush()
        self._reading = asyncio.create_task(self._read())

    def is_fresh(self) -> bool:
        """Return whether it takes a request now. One that was idle for too long ends."""
        is_stale = not self._streams and asyncio.get_running_loop().time() - self._last_used > MOST_IDLE
        if is_stale:
            self._stop()
        return self.is_usable

    async def send(self, stream: _Stream) -> Ended | None:
        """Send a request when a stream is free, and return its result; None if it was not processed."""
        from h2.exceptions import H2Error  # noqa: PLC0415 - see __init__

        while self.is_usable and not self._is_free():
            await self._next_change()
        if not self.is_usable:
            return None
        try:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(number, stream.headers)
        except H2Error:
            # It has no more numbers of streams, or has just ended.
            self.is_usable = False
            return None
        self._streams[number] = stream
        try:
            await self._send_body(number, stream)
            # One who stops waiting must not cancel the result itself: it shows that the stream is still open.
            return await asyncio.shield(stream.ended)
        finally:
            self._forget(number, stream)

    async def close(self) -> None:
        """End it at once, with its requests."""
        if not self.is_over:
            self._h2.close_connection()
            self._flush()
        self._reading.cancel()
        await asyncio.wait([self._reading])
        # The task does it, unless it was cancelled before it began.
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _is_free(self) -> bool:
        most = self._h2.remote_settings.max_concurrent_streams
        return self._has_settings and self._h2.open_outbound_streams < most

    async def _send_body(self, number: int, stream: _Stream) -> None:
        rest = memoryview(stream.body)
        while not stream.is_complete and not stream.ended.done():
            size = min(self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size, len(rest))
            if size > 0 or not rest:
                stream.is_complete = size == len(rest)
                self._h2.send_data(number, bytes(rest[:size]), end_stream=stream.is_complete)
                rest = rest[size:]
                self._flush()
                await self._writer.drain()
            else:
                self._flush()
                await self._next_change()

    def _forget(self, number: int, stream: _Stream) -> None:
        """Free the place of a stream; one whose caller has stopped waiting is reset."""
        from h2.errors import ErrorCodes  # noqa: PLC0415 - see __init__
        from h2.exceptions import H2Error  # noqa: PLC0415 - the same

        del self._streams[number]
        self._last_used = asyncio.get_running_loop().time()
        if not stream.ended.done() and not self.is_over:
            with contextlib.suppress(H2Error):
                self._h2.reset_stream(number, ErrorCodes.CANCEL)
            self._flush()
        if not self.is_usable and not self._streams:
            self._stop()
        self._change.set()

    async def _read(self) -> None:
        from h2.exceptions import H2Error  # noqa: PLC0415 - see __init__

        reason = "the server closed the connection"
        try:
            async for frame in self._frames():
                if frame[3] == GOAWAY:
                    self._end_after(int.from_bytes(frame[FRAME_HEADER : FRAME_HEADER + 4]) & 0x7FFFFFFF)
                else:
                    for event in self._h2.receive_data(frame):
                        self._handle(event)
                self._flush()
                self._change.set()
        except (OSError, H2Error) as error:
            reason = (str(error) or type(error).__name__)[:MOST_TEXT]
        finally:
            self.is_usable, self.is_over = False, True
            for stream in self._streams.values():
                stream.end(stream.lost(reason))
            self._change.set()
            self._writer.close()

    async def _frames(self) -> AsyncIterator[bytes]:
        """Yield frames one by one: h2 would forget all streams at GOAWAY, also those that are still answered."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await self._reader.readexactly(FRAME_HEADER)
                length = int.from_bytes(head[:3])
                if length > LARGEST_FRAME:
                    raise ConnectionError("the server sends a frame that is too large")
                yield head + await self._reader.readexactly(length)

    def _end_after(self, last: int) -> None:
        """Take no more requests: the server processes those up to stream `last`, and no others."""
        self.is_usable = False
        for number, stream in self._streams.items():
            if number > last:
                stream.end(None)
        if not self._streams:
            self._stop()

    def _stop(self) -> None:
        """End the connection; the reading task does the rest."""
        self.is_usable = False
        self._writer.close()

    def _handle(self, event: "Event") -> None:
        from h2 import events  # noqa: PLC0415 - see __init__

        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        match event:
            case events.RemoteSettingsChanged():
                self._has_settings = True
            case events.DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                if stream is not None:
                    stream.receive_data(event.data or b"")
            case events.ResponseReceived() if stream is not None:
                stream.receive_headers(cast("Iterable[tuple[bytes, bytes]]", event.headers or ()))
            case events.StreamEnded() if stream is not None:
                stream.finish()
            case events.StreamReset() if stream is not None:
                is_refused = event.error_code == REFUSED_STREAM
                reason = f"the server reset the stream with code {int(event.error_code or 0)}"
                stream.end(None if is_refused else stream.lost(reason))

    def _flush(self) -> None:
        if not self._writer.is_closing() and (data := self._h2.data_to_send()):
            self._writer.write(data)

    async def _next_change(self) -> None:
        self._change.clear()
        await self._change.wait()
