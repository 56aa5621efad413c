"""Concurrent viewers share one query; a slow or unavailable database causes no errors."""

import asyncio
from collections.abc import AsyncIterator
from inspect import signature
from typing import Any

import httpx
import pytest

from sereno import Sereno
from sereno.database.statement import Operation
from sereno.jobs import pauses as pause_operations
from sereno.jobs.queries.jobs import pauses
from sereno.jobs.queries.rows import PauseRow
from sereno.server.shared import authenticator
from sereno.server.shared import cache as cache_module
from sereno.server.shared.authenticator import Authenticator
from sereno.server.shared.cache import MISSING, Cache
from sereno.server.shared.context import ServerContext
from tests.facts import until
from tests.server.api.conftest import Ask, Served
from tests.server.web.outages import locked, unavailable


class CountingContext:
    """A context that counts its reads."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.reads = 0

    async def read(self, operation: Operation[Any], *, seconds: float = 0.5) -> Any:
        self.reads += 1
        return await self._context.read(operation, seconds=seconds)

    def may_use_standby(self) -> bool:
        return self._context.may_use_standby()


@pytest.fixture
async def reader(app: Sereno) -> AsyncIterator[CountingContext]:
    yield CountingContext(ServerContext(app, Authenticator(app.database)))
    await app.database.aclose()


@pytest.fixture
def cache(reader: CountingContext) -> Cache:
    return Cache(reader)


def pause(app: Sereno, name: str) -> None:
    app.database.run(pause_operations.pause("queue", name, actor="test"))


def names(found: list[PauseRow] | None) -> list[str]:
    return [each.name for each in found or []]


async def test_concurrent_viewers_make_one_query(cache: Cache, reader: CountingContext) -> None:
    found = await asyncio.gather(*(cache.get("pauses", pauses) for _ in range(50)))
    assert reader.reads == 1
    assert {each.age for each in found} == {0.0}
    await cache.get("pauses", pauses, fresh=60.0)
    assert reader.reads == 1, "a fresh result was read again"
    assert signature(cache.get).parameters["fresh"].default == 1.0, "by default a result is fresh for a second"
    await cache.get("others", pauses)
    await cache.get("pauses", pauses, fresh=0.0)
    assert reader.reads == 3


async def test_new_rows_are_read_once_the_result_is_not_fresh(cache: Cache, app: Sereno) -> None:
    assert names((await cache.get("pauses", pauses)).value) == []
    pause(app, "mail")
    assert names((await cache.get("pauses", pauses, fresh=60.0)).value) == [], "the cached result"
    assert names((await cache.get("pauses", pauses, fresh=0.0)).value) == ["mail"]


async def test_a_slow_database_gives_the_last_result_and_its_age(cache: Cache, app: Sereno, database_url: str) -> None:
    pause(app, "mail")
    await cache.get("pauses", pauses)
    with locked(database_url, "pauses"):
        cached = await cache.get("pauses", pauses, fresh=0.0, seconds=0.2)
        assert names(cached.value) == ["mail"]
        assert cached.is_old
        assert cached.age >= 0.2
        assert await cache.get("never", pauses, seconds=0.2) == MISSING
        assert MISSING.is_missing
    again = await cache.get("pauses", pauses, fresh=0.0)
    assert not again.is_old


async def test_an_unavailable_database_gives_the_last_result(
    cache: Cache, app: Sereno, server_url: str, database_url: str
) -> None:
    pause(app, "mail")
    await cache.get("pauses", pauses)
    with unavailable(server_url, database_url):
        cached = await cache.get("pauses", pauses, fresh=0.0)
        assert names(cached.value) == ["mail"]
        assert cached.is_old
    assert not (await cache.get("pauses", pauses, fresh=0.0)).is_old


async def test_a_caller_that_gives_up_does_not_cancel_the_query(
    cache: Cache, reader: CountingContext, database_url: str
) -> None:
    with locked(database_url, "pauses"):
        cached = await cache.get("pauses", pauses, timeout=0.01, seconds=20)
        assert cached.is_missing
        cancelled = asyncio.create_task(cache.get("pauses", pauses, seconds=20))
        await asyncio.sleep(0)
        cancelled.cancel()
    assert names((await cache.get("pauses", pauses, seconds=20)).value) == []
    assert reader.reads == 1, "the callers did not share one query"


async def test_an_error_is_raised_for_all_callers(cache: Cache) -> None:
    def broken() -> Operation[None]:
        yield from pauses()
        raise ValueError("not the database's fault")

    answers = await asyncio.gather(*(cache.get("broken", broken) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in answers] == [ValueError] * 3
    with pytest.raises(ValueError, match="fault"):
        await cache.get("broken", broken)


async def test_the_cache_is_bounded(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_module.MOST_REMEMBERED == 500
    monkeypatch.setattr(cache_module, "MOST_REMEMBERED", 20)

    def nothing() -> Operation[int]:
        yield from pauses()
        return 1

    for number in range(25):
        await cache.get(number, nothing)
    assert len(cache._values) == 20
    assert 0 not in cache._values
    assert cache._running == {}


@pytest.mark.slow
def test_pages_work_while_the_database_is_slow(app: Sereno, ask: Ask, served: Served, database_url: str) -> None:
    """A page shows the last result, or a message where there is none."""

    @app.task
    def work() -> None: ...

    work.enqueue()
    client = _pages(ask, served)
    assert ">work<" in client.get("/").text
    with locked(database_url, "jobs"):
        assert ">work<" in until(lambda: _old(client.get("/")))
        assert client.get("/", params={"range": "7d"}).status_code == 200
    assert until(lambda: not _old(client.get("/")))


@pytest.mark.slow
def test_pages_work_while_the_database_is_unavailable(
    ask: Ask, served: Served, server_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages work for as long as the user's token is cached."""
    monkeypatch.setattr(authenticator, "FRESH_SECONDS", 60.0)
    client = _pages(ask, served)
    assert client.get("/").status_code == 200
    with unavailable(server_url, database_url):
        assert until(lambda: _old(client.get("/")))
    assert client.get("/").status_code == 200


@pytest.mark.slow
def test_an_unknown_user_gets_a_message_while_the_database_is_unavailable(
    ask: Ask, served: Served, server_url: str, database_url: str
) -> None:
    """Their token cannot be checked."""
    client = _pages(ask, served)
    with unavailable(server_url, database_url):
        answer = client.get("/")
        assert answer.status_code == 503
        assert "The database is busy or unavailable" in answer.text
        assert client.get("/sign-in", headers={"Authorization": ""}).status_code == 200


def _old(answer: httpx.Response) -> str:
    """Return the page if it is marked as outdated, and otherwise an empty text."""
    assert answer.status_code == 200
    return answer.text if 'class="old"' in answer.text else ""


def _pages(ask: Ask, served: Served) -> httpx.Client:
    client = ask("admin")
    client.base_url = httpx.URL(served.url)
    return client
