"""The worker's health port responds to probes despite clients that do not finish their requests."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack

import httpx
import pytest

from sereno.settings import Settings
from sereno.worker import health as module
from sereno.worker.health import MOST_CONNECTIONS, HealthServer
from tests.facts import TIMEOUT, auntil
from tests.plain_http import NO_CERTIFICATES


@pytest.fixture
async def health() -> AsyncIterator[HealthServer]:
    server = HealthServer(Settings(health_port=0), is_live=lambda: True, is_ready=lambda: True, metrics=bytes)
    await server.start()
    yield server
    await server.stop()
    await auntil(lambda: not server._connections)


def _half_a_request(health: HealthServer) -> socket.socket:
    wire = socket.create_connection(("127.0.0.1", health.port))
    wire.sendall(b"GET /livez HTTP/1.1\r\nX-Slow: ")
    wire.setblocking(False)
    return wire


async def _end(wire: socket.socket) -> bytes:
    """Return what is received before the other side closes the connection."""
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(wire, 1000), TIMEOUT)
    except ConnectionResetError:
        return b""


async def test_half_sent_requests_do_not_block_probes(health: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # The half-sent requests do not time out while this test runs.
    monkeypatch.setattr(module, "REQUEST_TIMEOUT", 600.0)
    with ExitStack() as sockets:
        slow = [sockets.enter_context(_half_a_request(health)) for _ in range(MOST_CONNECTIONS + 10)]
        for wire in slow[:10]:
            assert await _end(wire) == b"", "the oldest connections are closed for new ones"
        async with httpx.AsyncClient(verify=NO_CERTIFICATES, timeout=TIMEOUT) as client:
            assert (await client.get(f"http://127.0.0.1:{health.port}/livez")).status_code == 200
        assert len(health._connections) <= MOST_CONNECTIONS


async def test_a_half_sent_request_times_out(health: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_TIMEOUT", 0.2)
    with _half_a_request(health) as wire:
        assert await _end(wire) == b""
