"""HTTP/2 connections: many requests at once, and what is known of a request when a connection ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from sereno.channels.http import HTTPResponse
from sereno.channels.http2 import MOST_IDLE, HTTP2Client
from sereno.channels.outcome import Retryable, Unknown
from sereno.testing.http2 import HTTP2Provider
from sereno.testing.provider import Request
from tests.channels.certificates import certified
from tests.facts import auntil

TIMEOUT = 60.0


class Echo(HTTP2Provider):
    """Returns the body that it got, or the size of a large one."""

    async def answer(self, request: Request) -> web.StreamResponse:
        size = len(request.body)
        return web.Response(body=request.body if size < 1000 else b"%d" % size, headers={"X-Path": request.path})


@pytest.fixture
async def server() -> AsyncIterator[Echo]:
    async with Echo() as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[HTTP2Client]:
    async with opened() as client:
        yield client


@asynccontextmanager
async def opened() -> AsyncIterator[HTTP2Client]:
    client = HTTP2Client()
    try:
        yield client
    finally:
        await client.close()


async def send(
    client: HTTP2Client, server: HTTP2Provider, body: bytes = b"hello", timeout: float = TIMEOUT
) -> HTTPResponse | Retryable | Unknown:
    return await client.post(f"{server.url}/path?a=1", {"x-one": "1"}, body, timeout)


async def test_requests_share_one_connection(client: HTTP2Client, server: Echo) -> None:
    server.held.clear()
    sending = [asyncio.create_task(send(client, server, b"%d" % each)) for each in range(50)]
    await auntil(lambda: server.at_once == 50)
    server.held.set()
    responses = await asyncio.gather(*sending)
    assert [response.body for response in responses if isinstance(response, HTTPResponse)] == [
        b"%d" % each for each in range(50)
    ]
    assert server.connections == 1
    request = server.log[0]
    assert (request.method, request.path, request.headers["x-one"]) == ("POST", "/path?a=1", "1")
    assert request.headers[":authority"] == server.url.removeprefix("http://")


async def test_no_more_requests_are_open_than_the_server_allows(client: HTTP2Client, server: Echo) -> None:
    server.streams = 3
    server.held.clear()
    sending = [asyncio.create_task(send(client, server)) for _ in range(20)]
    await auntil(lambda: server.at_once == 3)
    server.held.set()
    responses = await asyncio.gather(*sending)
    assert all(isinstance(response, HTTPResponse) for response in responses)
    assert server.most_at_once == 3


async def test_bodies_wait_for_the_window_of_the_server(client: HTTP2Client, server: Echo) -> None:
    body = bytes(300_000)
    responses = await asyncio.gather(*(send(client, server, body) for _ in range(4)))
    assert [isinstance(response, HTTPResponse) and response.body == b"300000" for response in responses] == [True] * 4


async def test_an_empty_body_is_sent(client: HTTP2Client, server: Echo) -> None:
    response = await send(client, server, b"")
    assert isinstance(response, HTTPResponse)
    assert (response.status, response.body, response.headers["x-path"]) == (200, b"", "/path?a=1")


async def test_a_connection_that_ends_answers_its_requests_and_the_others_go_to_the_next(
    client: HTTP2Client, server: Echo
) -> None:
    server.goaway_after = 5
    server.held.clear()
    sending = [asyncio.create_task(send(client, server, b"%d" % each)) for each in range(12)]
    await auntil(lambda: server.connections == 3)
    server.held.set()
    responses = await asyncio.gather(*sending)
    assert {response.body for response in responses if isinstance(response, HTTPResponse)} == {
        b"%d" % each for each in range(12)
    }
    assert len(server.log) == 12, "none was processed twice"


async def test_a_refused_stream_is_sent_again(client: HTTP2Client, server: Echo) -> None:
    server.refuses_streams = 2
    assert isinstance(await send(client, server), HTTPResponse)
    assert len(server.log) == 1
    server.refuses_streams = 100
    outcome = await send(client, server)
    assert isinstance(outcome, Retryable)
    assert outcome.code == "not_processed"
    assert len(server.log) == 1


async def test_a_lost_connection_leaves_the_outcome_unknown(client: HTTP2Client, server: Echo) -> None:
    server.held.clear()
    sending = asyncio.create_task(send(client, server))
    await auntil(lambda: server.at_once == 1)
    await server.disconnect()
    assert isinstance(await sending, Unknown)
    server.held.set()
    assert isinstance(await send(client, server), HTTPResponse)
    assert server.connections == 2


async def test_a_connection_that_was_closed_while_idle_is_replaced(client: HTTP2Client, server: Echo) -> None:
    await send(client, server)
    (connection,) = client._open
    await server.disconnect()
    await auntil(lambda: connection.is_over)
    assert isinstance(await send(client, server), HTTPResponse)


async def test_a_connection_that_was_idle_for_long_is_replaced(client: HTTP2Client, server: Echo) -> None:
    await send(client, server)
    (connection,) = client._open
    connection._last_used -= MOST_IDLE + 1
    assert isinstance(await send(client, server), HTTPResponse)
    assert server.connections == 2
    await auntil(lambda: connection.is_over)


async def test_no_response_in_time_is_unknown_and_ends_the_connection(client: HTTP2Client, server: Echo) -> None:
    server.fault = "silence"
    assert isinstance(await send(client, server, timeout=0.5), Unknown)
    server.fault = None
    assert isinstance(await send(client, server), HTTPResponse)
    assert server.connections == 2


async def test_no_free_stream_in_time_is_retried(client: HTTP2Client, server: Echo) -> None:
    server.streams = 1
    server.held.clear()
    first = asyncio.create_task(send(client, server))
    await auntil(lambda: server.at_once == 1)
    outcome = await send(client, server, timeout=0.2)
    assert isinstance(outcome, Retryable), "it was never sent"
    server.held.set()
    assert isinstance(await first, HTTPResponse)
    assert len(server.log) == 1


async def test_a_caller_that_stops_waiting_disturbs_no_other(client: HTTP2Client, server: Echo) -> None:
    server.held.clear()
    first, second = (asyncio.create_task(send(client, server)) for _ in range(2))
    await auntil(lambda: server.at_once == 2)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    server.held.set()
    assert isinstance(await second, HTTPResponse)
    assert isinstance(await send(client, server), HTTPResponse)
    assert server.connections == 1


async def test_a_connection_without_further_streams_is_replaced(client: HTTP2Client, server: Echo) -> None:
    await send(client, server)
    (connection,) = client._open
    connection._h2.highest_outbound_stream_id = 2**31 - 1
    assert isinstance(await send(client, server), HTTPResponse)
    assert server.connections == 2


async def test_a_connection_is_closed_before_its_task_begins(server: Echo) -> None:
    client = HTTP2Client()
    await client._connection(server.url)
    await client.close()
    (connection,) = client._open
    assert connection._writer.is_closing()


async def test_a_server_that_is_not_there_is_retried(client: HTTP2Client) -> None:
    async with Echo() as server:
        pass
    assert isinstance(await send(client, server), Retryable)
    outcome = await client.post("http://name.invalid/", {}, b"", TIMEOUT)
    assert isinstance(outcome, Retryable)


ODD_SERVERS = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"",
    b"\x00" * 1000,
    b"\xff\xff\xff\x04\x00\x00\x00\x00\x00",
    # Settings, then the response to a stream that was never opened.
    b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x01\x01\x05\x00\x00\x00\x63\x88",
    # Settings, then a GOAWAY without content.
    b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x00\x07\x00\x00\x00\x00\x00",
]


async def test_a_server_that_does_not_speak_http2_is_an_outcome(client: HTTP2Client, subtests: pytest.Subtests) -> None:
    for greeting in ODD_SERVERS:
        with subtests.test(greeting=greeting[:20]):

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes = greeting
            ) -> None:
                writer.write(greeting)
                await reader.read(10)
                writer.close()

            async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                outcome = await client.post(f"http://127.0.0.1:{port}/", {}, b"body", TIMEOUT)
            assert isinstance(outcome, Retryable | Unknown)


SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
ODD_RESPONSES: list[tuple[bytes, type[HTTPResponse | Retryable | Unknown]]] = [
    # :status 200, and a value that is not UTF-8.
    (b"\x88\x00\x01x\x01\xff", HTTPResponse),
    # No status at all.
    (b"\x00\x01x\x01y", Unknown),
    # A length that goes beyond the frame.
    (b"\x88\x00\x7f\xff", Unknown),
    # A header in capitals.
    (b"\x88\x00\x01X\x01y", Unknown),
]


async def test_odd_responses_are_outcomes(client: HTTP2Client, subtests: pytest.Subtests) -> None:
    for block, kind in ODD_RESPONSES:
        with subtests.test(block=block):

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, block: bytes = block) -> None:
                writer.write(SETTINGS)
                await reader.readuntil(b"the body")
                # HEADERS of stream 1, which end it.
                writer.write(len(block).to_bytes(3) + b"\x01\x05\x00\x00\x00\x01" + block)
                await reader.read()
                writer.close()

            async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                outcome = await client.post(f"http://127.0.0.1:{port}/", {}, b"the body", TIMEOUT)
                await client.close()
            assert isinstance(outcome, kind)


async def test_with_tls_the_certificate_and_the_protocol_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for trusted, alpn in [(True, "h2"), (True, None), (False, "h2")]:
        with subtests.test(trusted=trusted, alpn=alpn):
            context = certified(tmp_path, alpn)
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem") if trusted else "/dev/null")
            async with Echo(context) as server, opened() as client:
                outcome = await send(client, server)
            assert isinstance(outcome, HTTPResponse if trusted and alpn else Retryable)
