"""Server time of each page over a large data set, and the database load of fifty viewers.

Every page is measured without the server's cache: each request asks for current figures, as a browser does after a
change, so that no cached figure of a second ago helps. The one exception is the forecast, which reads every schedule in
the background and serves later requests. PostgreSQL's own buffers stay warm, as they do on a server in use.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import httpx
import psycopg
import uvicorn

from bench.context import BenchContext
from bench.dashboard_data import fill
from sereno import Sereno
from sereno.server import asgi

HISTORY, HISTORY_QUICK = 10_000_000, 200_000
SCHEDULES, SCHEDULES_QUICK = 1_000_000, 50_000
DELIVERIES, DELIVERIES_QUICK = 1_000_000, 50_000
ROUNDS, ROUNDS_QUICK = 7, 3
WARM_UP = 2
# Required time per page.
BAR_MS = 100.0
VIEWERS = 50
SECONDS_BETWEEN_VIEWS = 2.0
WATCHED_SECONDS, WATCHED_SECONDS_QUICK = 20, 6

# `{job}` and `{trace}` are replaced by ones that exist.
PAGES = {
    "now": "",
    "now_7d": "?range=7d",
    "schedules": "schedules",
    "schedule": "schedule?key=close:77",
    "jobs": "jobs",
    "jobs_dead": "jobs?q=state:dead",
    "jobs_of_tenant": "jobs?q=tenant:t77",
    "job": "jobs?job={job}",
    "notifications": "notifications",
    "deliveries": "deliveries",
    "recipients": "recipients",
    "recipient": "recipient?key=user:77",
    "templates": "templates",
    "channels": "channels",
    "traces": "traces",
    "trace": "trace?id={trace}",
    "tenants": "tenants",
    "tenant": "tenant?name=t77",
    "queues": "queues",
    "errors": "errors",
    "archive": "archive",
    "system": "system",
    "logs": "logs",
    "alerts": "alerts",
    "operations": "operations",
}

LOAD = "select xact_commit, active_time from pg_stat_database where datname = current_database()"


def run(context: BenchContext) -> None:
    """Report one figure per page, in ms, then the load of the viewers."""
    with context.server.fresh("dashboard") as url, psycopg.connect(url, autocommit=True) as connection:
        existing = fill(
            connection,
            history=context.size(HISTORY, HISTORY_QUICK),
            schedules=context.size(SCHEDULES, SCHEDULES_QUICK),
            deliveries=context.size(DELIVERIES, DELIVERIES_QUICK),
            note=context.report.note,
        )
        app = Sereno(url)
        try:
            _pages(context, app, {name: path.format(**existing) for name, path in PAGES.items()})
            _watched(context, app, connection)
        finally:
            app.close()


def _pages(context: BenchContext, app: Sereno, pages: dict[str, str]) -> None:
    rounds = context.size(ROUNDS, ROUNDS_QUICK)
    with _served(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        for name, path in pages.items():
            # The first requests are not counted: they read from disk what later ones find in memory.
            for _ in range(WARM_UP):
                _request_page(client, path)
            times = [_request_page(client, path) for _ in range(rounds)]
            context.report.figure(name, median(times), "ms")
            if max(times) > BAR_MS:
                context.report.note(f"{name}: the slowest of {rounds} took {max(times):.0f} ms")


def _request_page(client: httpx.Client, path: str) -> float:
    """Return the server's own time for one request, in ms."""
    response = client.get(path, headers={"X-Sereno-Live": "changed"})
    response.raise_for_status()
    return float(response.headers["server-timing"].partition("dur=")[2])


def _watched(context: BenchContext, app: Sereno, connection: psycopg.Connection) -> None:
    seconds = context.size(WATCHED_SECONDS, WATCHED_SECONDS_QUICK)
    with _served(app) as url:
        commits, active = _load(connection)
        cpu, began = time.process_time(), time.monotonic()
        views = asyncio.run(_watch(url, seconds))
        wall = time.monotonic() - began
        spent = time.process_time() - cpu
        commits_after, active_after = _load(connection)
    context.report.figure("viewers", VIEWERS, "")
    context.report.figure("views", views / wall, "/s")
    context.report.figure("database_load", (active_after - active) / wall / 10, "% core")
    context.report.figure("transactions", (commits_after - commits) / wall, "/s")
    context.report.note(f"server and viewers together took {spent / wall:.0%} of a core")


def _load(connection: psycopg.Connection) -> tuple[int, float]:
    connection.execute("select pg_stat_clear_snapshot()")
    row = connection.execute(LOAD).fetchone()
    assert row is not None
    return int(row[0]), float(row[1])


async def _watch(url: str, seconds: float) -> int:
    """Every viewer follows the event stream and requests the first page as often as a browser does."""
    until = time.monotonic() + seconds

    async def view(client: httpx.AsyncClient) -> int:
        views = 0
        while time.monotonic() < until:
            (await client.get("", headers={"X-Sereno-Live": "1"})).raise_for_status()
            views += 1
            await asyncio.sleep(SECONDS_BETWEEN_VIEWS)
        return views

    async def follow_stream(client: httpx.AsyncClient) -> None:
        async with client.stream("GET", "api/v1/stream", headers={"Accept": "text/event-stream"}) as response:
            async for _ in response.aiter_lines():
                if time.monotonic() > until:
                    return

    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        streams = [asyncio.create_task(follow_stream(client)) for _ in range(VIEWERS)]
        views = await asyncio.gather(*(view(client) for _ in range(VIEWERS)))
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    return sum(views)


@contextmanager
def _served(app: Sereno) -> Iterator[str]:
    """Run a server with an empty cache, and yield its address."""
    config = uvicorn.Config(
        asgi(app, is_open=True),
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    started = threading.Event()
    running = _Server(config, started)

    async def serve() -> None:
        await running.serve()
        await app.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait(30)
    port = running.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        running.should_exit = True
        thread.join(30)


class _Server(uvicorn.Server):
    """Sets an event when the server listens."""

    def __init__(self, config: uvicorn.Config, started: threading.Event) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._started.set()
