"""Each page's server time over a large house, and what fifty people who watch cost the database.

Every page is measured with nothing remembered: each look asks for what is true now, as a browser does after a change,
so that no figure of a second ago helps it. The one exception is the forecast, which reads every schedule in the
background and is there for whoever comes next. What PostgreSQL keeps in memory stays there, as it does in a house where
people look.
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

from bench.dashboard_house import fill
from bench.site import Site
from sereno import Sereno
from sereno.server import asgi

HISTORY, HISTORY_QUICK = 10_000_000, 200_000
SCHEDULES, SCHEDULES_QUICK = 1_000_000, 50_000
DELIVERIES, DELIVERIES_QUICK = 1_000_000, 50_000
ROUNDS, ROUNDS_QUICK = 7, 3
WARM_UP = 2
# DESIGN, section 8.
BAR_MS = 150.0
VIEWERS = 50
SECONDS_BETWEEN_VIEWS = 2.0
WATCHED_SECONDS, WATCHED_SECONDS_QUICK = 20, 6

# `{…}` are things that are there.
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


def run(site: Site) -> None:
    """One figure a page, in ms; then the load of those who watch."""
    with site.server.fresh("dashboard") as url, psycopg.connect(url, autocommit=True) as connection:
        found = fill(
            connection,
            history=site.size(HISTORY, HISTORY_QUICK),
            schedules=site.size(SCHEDULES, SCHEDULES_QUICK),
            deliveries=site.size(DELIVERIES, DELIVERIES_QUICK),
            note=site.report.note,
        )
        app = Sereno(url)
        try:
            _pages(site, app, {name: path.format(**found) for name, path in PAGES.items()})
            _watched(site, app, connection)
        finally:
            app.close()


def _pages(site: Site, app: Sereno, pages: dict[str, str]) -> None:
    rounds = site.size(ROUNDS, ROUNDS_QUICK)
    with _served(app) as url, httpx.Client(base_url=url, timeout=60) as client:
        for name, path in pages.items():
            # The first looks are not counted: they read from the disk what later ones find in memory.
            for _ in range(WARM_UP):
                _look(client, path)
            times = [_look(client, path) for _ in range(rounds)]
            site.report.figure(name, median(times), "ms")
            if max(times) > BAR_MS:
                site.report.note(f"{name}: the slowest of {rounds} took {max(times):.0f} ms")


def _look(client: httpx.Client, path: str) -> float:
    """The server's own time for one look, in ms."""
    answer = client.get(path, headers={"X-Sereno-Live": "changed"})
    answer.raise_for_status()
    return float(answer.headers["server-timing"].partition("dur=")[2])


def _watched(site: Site, app: Sereno, connection: psycopg.Connection) -> None:
    seconds = site.size(WATCHED_SECONDS, WATCHED_SECONDS_QUICK)
    with _served(app) as url:
        commits, active = _load(connection)
        cpu, began = time.process_time(), time.monotonic()
        views = asyncio.run(_watch(url, seconds))
        wall = time.monotonic() - began
        spent = time.process_time() - cpu
        commits_after, active_after = _load(connection)
    site.report.figure("viewers", VIEWERS, "")
    site.report.figure("views", views / wall, "/s")
    site.report.figure("database_load", (active_after - active) / wall / 10, "% core")
    site.report.figure("transactions", (commits_after - commits) / wall, "/s")
    site.report.note(f"server and viewers together took {spent / wall:.0%} of a core")


def _load(connection: psycopg.Connection) -> tuple[int, float]:
    connection.execute("select pg_stat_clear_snapshot()")
    row = connection.execute(LOAD).fetchone()
    assert row is not None
    return int(row[0]), float(row[1])


async def _watch(url: str, seconds: float) -> int:
    """Everybody hears the stream, and looks at the first page as often as a browser does."""
    until = time.monotonic() + seconds

    async def look(client: httpx.AsyncClient) -> int:
        views = 0
        while time.monotonic() < until:
            (await client.get("", headers={"X-Sereno-Live": "1"})).raise_for_status()
            views += 1
            await asyncio.sleep(SECONDS_BETWEEN_VIEWS)
        return views

    async def hear(client: httpx.AsyncClient) -> None:
        async with client.stream("GET", "api/v1/stream", headers={"Accept": "text/event-stream"}) as answer:
            async for _ in answer.aiter_lines():
                if time.monotonic() > until:
                    return

    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        streams = [asyncio.create_task(hear(client)) for _ in range(VIEWERS)]
        views = await asyncio.gather(*(look(client) for _ in range(VIEWERS)))
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    return sum(views)


@contextmanager
def _served(app: Sereno) -> Iterator[str]:
    """A server of its own, which remembers nothing."""
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
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, started: threading.Event) -> None:
        super().__init__(config)
        self._listens = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listens.set()
