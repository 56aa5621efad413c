"""The worker's health port responds to probes despite clients that do not finish their requests."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import httpx
import psycopg
import pytest
from msgspec.structs import replace

from sereno.settings import Settings
from sereno.worker import health as module
from sereno.worker.autoscale import AutoscaleReader
from sereno.worker.health import MOST_CONNECTIONS, HealthServer
from tests.facts import TIMEOUT, auntil
from tests.jobs.job_steps import add
from tests.plain_http import NO_CERTIFICATES


@asynccontextmanager
async def serving(settings: Settings, url: str = "postgresql://127.0.0.1:1/none") -> AsyncIterator[HealthServer]:
    server = HealthServer(
        settings,
        is_live=lambda: True,
        is_ready=lambda: True,
        metrics=bytes,
        autoscale=AutoscaleReader(url, settings).respond,
    )
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def health() -> AsyncIterator[HealthServer]:
    async with serving(Settings(health_port=0)) as server:
        yield server


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


async def test_a_stop_ends_the_open_connections(health: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_TIMEOUT", 600.0)
    with _half_a_request(health) as wire:
        await auntil(lambda: len(health._connections) == 1)
        await health.stop()
        assert await _end(wire) == b""


async def test_autoscale_tells_the_wanted_workers(database_url: str, connection: psycopg.Connection) -> None:
    add(connection, 45, queue="mails")
    settings = Settings(health_port=0, concurrency=10)
    async with (
        serving(settings, database_url) as health,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{health.port}", verify=NO_CERTIFICATES, timeout=TIMEOUT
        ) as client,
    ):
        found = (await client.get("/autoscale", params={"queue": "mails"})).json()
        assert (found["wanted_workers"], found["ready"], found["queues"][0]["queue"]) == (5, 45, "mails")
        assert (await client.get("/autoscale?queue=mails&slots=20")).json()["wanted_workers"] == 3
        assert (await client.get("/autoscale?queue=other")).json()["wanted_workers"] == 0
        add(connection, 100, queue="mails")
        assert (await client.get("/autoscale")).json()["ready"] == 45, "one read serves five seconds"
        assert (await client.get("/autoscale?slots=0")).status_code == 400
        assert (await client.get("/autoscale?" + "queue=a&" * 200)).status_code == 400


async def test_autoscale_says_that_the_database_is_away(health: HealthServer) -> None:
    async with httpx.AsyncClient(verify=NO_CERTIFICATES, timeout=TIMEOUT) as client:
        response = await client.get(f"http://127.0.0.1:{health.port}/autoscale")
    assert (response.status_code, response.text) == (503, "the database does not respond\n")


async def test_beyond_loopback_metrics_and_autoscale_need_the_token(subtests: pytest.Subtests) -> None:
    settings = Settings(health_port=0, health_host="0.0.0.0", metrics_token="m" * 40)  # noqa: S104 - that is tested
    async with (
        serving(settings) as health,
        serving(replace(settings, metrics_token=None)) as closed,
        httpx.AsyncClient(verify=NO_CERTIFICATES, timeout=TIMEOUT) as client,
    ):
        for port, token, path, status in (
            (health.port, "m" * 40, "/metrics", 200),
            (health.port, "m" * 40, "/autoscale?slots=0", 400),
            (health.port, "m" * 39, "/metrics", 401),
            (health.port, "", "/autoscale", 401),
            (closed.port, "None", "/autoscale", 401),
            (closed.port, "", "/livez", 200),
        ):
            with subtests.test(path=path, token=token):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                response = await client.get(f"http://127.0.0.1:{port}{path}", headers=headers)
                assert response.status_code == status
