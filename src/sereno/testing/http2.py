"""A local provider that speaks HTTP/2, with or without TLS: many requests on a connection, and its ways to end."""

import asyncio
import contextlib
import ssl
from types import TracebackType
from typing import Self

from aiohttp import web
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamEnded
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from sereno.testing.provider import Provider, Request, faulty_response


class HTTP2Provider(Provider):
    """One HTTP/2 server on loopback. `tls`: None for HTTP/2 without encryption, which a client has to know.

    `streams`: requests at once on a new connection. `goaway_after`: requests after which a connection ends: it answers
    them, and processes no more. `refuses_streams`: streams that are still to be refused unprocessed. `held`: while it
    is cleared, no request is answered. `connections`: how many were opened. `most_at_once`: most requests that waited
    for an answer.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.streams = 1000
        self.goaway_after: int | None = None
        self.refuses_streams = 0
        self.held = asyncio.Event()
        self.held.set()
        self.connections = 0
        self.at_once = self.most_at_once = 0
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        if self._server is not None:
            self._server.close()
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)
        if self._server is not None:
            await self._server.wait_closed()

    async def disconnect(self) -> None:
        """Close all connections without a word."""
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        self.connections += 1
        conversation = _Conversation(self, reader, writer)
        try:
            # A client that disconnects in the middle is normal.
            with contextlib.suppress(OSError, H2Error):
                await conversation.run()
        finally:
            writer.transport.abort()
            await conversation.end()
            del self._open[task]


class _Conversation:
    """The requests of one connection."""

    def __init__(self, provider: HTTP2Provider, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._provider, self._reader, self._writer = provider, reader, writer
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._headers: dict[int, dict[str, str]] = {}
        self._bodies: dict[int, bytearray] = {}
        self._responses: set[asyncio.Task[None]] = set()
        self._requests = 0
        self._is_ending = False

    async def run(self) -> None:
        initial = {SettingCodes.MAX_CONCURRENT_STREAMS: self._provider.streams}
        self._h2.local_settings = Settings(client=False, initial_values=initial)
        self._h2.initiate_connection()
        self._flush()
        while data := await self._reader.read(65536):
            for event in self._h2.receive_data(data):
                self._handle(event)
            self._flush()

    async def end(self) -> None:
        for task in self._responses:
            task.cancel()
        await asyncio.gather(*self._responses, return_exceptions=True)

    def _handle(self, event: Event) -> None:
        match event:
            case RequestReceived(stream_id=int(number)):
                self._headers[number] = {str(name): str(value) for name, value in event.headers or ()}
                self._bodies[number] = bytearray()
            case DataReceived(stream_id=int(number)):
                self._bodies[number] += event.data or b""
                self._h2.acknowledge_received_data(event.flow_controlled_length or 0, number)
            case StreamEnded(stream_id=int(number)):
                self._take(number)

    def _take(self, number: int) -> None:
        if self._is_ending:
            return
        if self._provider.refuses_streams:
            self._provider.refuses_streams -= 1
            self._h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            return
        headers = self._headers.pop(number)
        request = Request(headers[":method"], headers[":path"], headers, bytes(self._bodies.pop(number)))
        self._provider.log.append(request)
        self._requests += 1
        task = asyncio.create_task(self._respond(number, request))
        self._responses.add(task)
        task.add_done_callback(self._responses.discard)
        if self._requests == self._provider.goaway_after:
            self._is_ending = True
            self._flush()
            # By hand: h2 would send nothing after its own.
            self._writer.write(bytes([0, 0, 8, 7, 0, 0, 0, 0, 0]) + number.to_bytes(4) + bytes(4))

    async def _respond(self, number: int, request: Request) -> None:
        provider = self._provider
        provider.at_once += 1
        provider.most_at_once = max(provider.most_at_once, provider.at_once)
        try:
            await provider.held.wait()
            match provider.fault:
                case None:
                    response = await provider.answer(request)
                    assert isinstance(response, web.Response)
                    self._send(number, response)
                case "html" | "busy" | "broken" | "denied":
                    self._send(number, faulty_response(provider.fault))
                case "half":
                    self._h2.send_headers(number, [(":status", "200"), ("content-length", "1000")])
                    self._h2.send_data(number, b'{"data": [')
                    self._flush()
                    self._writer.close()
                case "silence":
                    await provider._ends.wait()  # noqa: SLF001 - a part of the provider
                case "close":
                    self._writer.transport.abort()
        finally:
            provider.at_once -= 1
        if self._is_ending and provider.at_once == 0:
            self._writer.close()

    def _send(self, number: int, response: web.Response) -> None:
        body = response.body if isinstance(response.body, bytes) else b""
        headers = [(name.lower(), value) for name, value in response.headers.items()]
        # A client that no longer waits has reset the stream.
        with contextlib.suppress(H2Error):
            if self._requests == 1 and self._provider.streams == 1:
                # As Apple does, once a request had a valid token.
                self._h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 1000})
            self._h2.send_headers(number, [(":status", str(response.status)), *headers], end_stream=not body)
            if body:
                self._h2.send_data(number, body, end_stream=True)
        self._flush()

    def _flush(self) -> None:
        if not self._writer.is_closing() and (data := self._h2.data_to_send()):
            self._writer.write(data)
