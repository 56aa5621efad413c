"""The application with an empty table; its providers and its server run in a thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvicorn
from reminders.api import create
from reminders.app import app
from reminders.install import create_tables
from reminders.stand_ins import StandIns
from reminders.tests.clients import ANA, ApiClient, sql

from sereno import Sereno
from sereno.monitoring.verify import verify
from sereno.testing.kit import Kit

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def kit(sereno_kit: Callable[[Sereno], Kit]) -> Iterator[Kit]:
    """The test kit; at the end `sereno verify` must find nothing."""
    made = sereno_kit(app)
    create_tables(app)
    sql("truncate reminders.reminders, reminders.dead_letters")
    app.schedules.synchronise()
    yield made
    assert [result for result in app.database.run(verify(lease=app.settings.lease)) if not result.holds] == []


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs coroutines in a separate thread and waits for their results."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


@pytest.fixture
def stand_ins(kit: Kit, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIns]:
    """The providers, configured and active in this process and, by the environment, in worker processes."""
    made = StandIns()
    run(made.__aenter__())
    for channel, account in made.accounts.items():
        app.channels.add(app.channels[channel], **account)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    app.override(channels=list(made.accounts))
    yield made
    app.override(channels=["in_app"])
    run(made.__aexit__(None, None, None))


@pytest.fixture
def remind(kit: Kit) -> Callable[..., int]:
    """Return a function that inserts a due reminder and returns its id."""

    def write(person: str = "ana", channel: str = "email", due: str = "-1 minute") -> int:
        statement = """insert into reminders.reminders (person, channel, title, due_at)
                       values (%s, %s, 'inspect the lift', now() + %s::interval) returning id"""
        return int(sql(statement, person, channel, due)[0][0])

    app.recipients.upsert("ana", ANA)
    return write


@pytest.fixture
def api(kit: Kit) -> Iterator[ApiClient]:
    """The API on a real socket, without a worker."""
    server = uvicorn.Server(uvicorn.Config(create(), port=0, lifespan="off", log_config=None))
    thread = threading.Thread(target=lambda: run_server(server))
    thread.start()
    kit.until(lambda: server.started)
    yield ApiClient(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    server.should_exit = True
    thread.join(30)


def run_server(server: uvicorn.Server) -> None:
    async def serve() -> None:
        await server.serve()
        await app.aclose()

    asyncio.run(serve())
