"""Concurrent viewers share one query; a slow or unavailable database causes no errors."""

import asyncio
from collections.abc import AsyncIterator
from inspect import signature
from typing import Any

import httpx
import pytest

from sereno import Sereno
from sereno.database.statement import Operation
from sereno.jobs import queues
from sereno.jobs.queries import pauses
from sereno.jobs.rows import PauseRow
from sereno.server.shared import authenticator
from sereno.server.shared.authenticator import Authenticator
from sereno.server.shared.cache import MISSING, MOST_REMEMBERED, Cache
from sereno.server.shared.context import ServerContext
from tests.facts import until
from tests.server.api.conftest import Ask, Served
from tests.server.web.outages import away, locked


class Counting:
    """A context that counts its reads."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self.looks = 0

    async def read(self, operation: Operation[Any], *, seconds: float = 0.5) -> Any:
        self.looks += 1
        return await self._context.read(operation, seconds=seconds)


@pytest.fixture
async def reader(app: Sereno) -> AsyncIterator[Counting]:
    yield Counting(ServerContext(app, Authenticator(app.database)))
    await app.database.aclose()


@pytest.fixture
def cache(reader: Counting) -> Cache:
    return Cache(reader)


def pause(app: Sereno, name: str) -> None:
    app.database.run(queues.pause("queue", name, actor="test"))


def names(found: list[PauseRow] | None) -> list[str]:
    return [each.name for each in found or []]


async def test_concurrent_viewers_make_one_query(cache: Cache, reader: Counting) -> None:
    found = await asyncio.gather(*(cache.get("pauses", pauses) for _ in range(50)))
    assert reader.looks == 1
    assert {each.age for each in found} == {0.0}
    await cache.get("pauses", pauses, fresh=60.0)
    assert reader.looks == 1, "it is still fresh"
    assert signature(cache.get).parameters["fresh"].default == 1.0, "for a second, if nobody says otherwise"
    await cache.get("others", pauses)
    await cache.get("pauses", pauses, fresh=0.0)
    assert reader.looks == 3


async def test_new_rows_are_seen(cache: Cache, app: Sereno) -> None:
    assert names((await cache.get("pauses", pauses)).value) == []
    pause(app, "mail")
    assert names((await cache.get("pauses", pauses, fresh=60.0)).value) == [], "as it was a moment ago"
    assert names((await cache.get("pauses", pauses, fresh=0.0)).value) == ["mail"]


async def test_a_slow_database_gives_the_last_result_and_its_age(cache: Cache, app: Sereno, database_url: str) -> None:
    pause(app, "mail")
    await cache.get("pauses", pauses)
    with locked(database_url, "pauses"):
        seen = await cache.get("pauses", pauses, fresh=0.0, seconds=0.2)
        assert names(seen.value) == ["mail"]
        assert seen.is_old
        assert seen.age >= 0.2
        assert await cache.get("never", pauses, seconds=0.2) == MISSING
        assert MISSING.is_missing
    again = await cache.get("pauses", pauses, fresh=0.0)
    assert not again.is_old


async def test_an_unavailable_database_gives_the_last_result(
    cache: Cache, app: Sereno, server_url: str, database_url: str
) -> None:
    pause(app, "mail")
    await cache.get("pauses", pauses)
    with away(server_url, database_url):
        seen = await cache.get("pauses", pauses, fresh=0.0)
        assert names(seen.value) == ["mail"]
        assert seen.is_old
    assert not (await cache.get("pauses", pauses, fresh=0.0)).is_old


async def test_an_impatient_caller_does_not_cancel_the_query(cache: Cache, reader: Counting, database_url: str) -> None:
    with locked(database_url, "pauses"):
        seen = await cache.get("pauses", pauses, patience=0.01, seconds=20)
        assert seen.is_missing
        leaving = asyncio.create_task(cache.get("pauses", pauses, seconds=20))
        await asyncio.sleep(0)
        leaving.cancel()
    assert names((await cache.get("pauses", pauses, seconds=20)).value) == []
    assert reader.looks == 1, "it was the same look all the time"


async def test_an_error_is_raised_for_all_callers(cache: Cache) -> None:
    def broken() -> Operation[None]:
        yield from pauses()
        raise ValueError("not the database's fault")

    answers = await asyncio.gather(*(cache.get("broken", broken) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in answers] == [ValueError] * 3
    with pytest.raises(ValueError, match="fault"):
        await cache.get("broken", broken)


async def test_the_cache_is_bounded(cache: Cache) -> None:
    def nothing() -> Operation[int]:
        yield from pauses()
        return 1

    for number in range(MOST_REMEMBERED + 5):
        await cache.get(number, nothing)
    assert len(cache._values) == MOST_REMEMBERED
    assert 0 not in cache._values
    assert cache._running == {}


def test_pages_work_while_the_database_is_slow(app: Sereno, ask: Ask, served: Served, database_url: str) -> None:
    """First with the last result, and then, where there is none, with a message."""

    @app.task
    def work() -> None: ...

    work.enqueue()
    client = _pages(ask, served)
    assert ">work<" in client.get("/").text
    with locked(database_url, "jobs"):
        assert ">work<" in until(lambda: _old(client.get("/")))
        assert client.get("/", params={"range": "7d"}).status_code == 200
    assert until(lambda: not _old(client.get("/")))


def test_pages_work_while_the_database_is_unavailable(
    ask: Ask, served: Served, server_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as the user is cached."""
    monkeypatch.setattr(authenticator, "FRESH_SECONDS", 60.0)
    client = _pages(ask, served)
    assert client.get("/").status_code == 200
    with away(server_url, database_url):
        assert until(lambda: _old(client.get("/")))
    assert client.get("/").status_code == 200


def test_an_unknown_user_gets_a_message_while_the_database_is_unavailable(
    ask: Ask, served: Served, server_url: str, database_url: str
) -> None:
    """They cannot be authenticated."""
    client = _pages(ask, served)
    with away(server_url, database_url):
        answer = client.get("/")
        assert answer.status_code == 503
        assert "The database is busy or unavailable" in answer.text
        assert client.get("/sign-in", headers={"Authorization": ""}).status_code == 200


def _old(answer: httpx.Response) -> str:
    """Return the page once it contains the text."""
    assert answer.status_code == 200
    return answer.text if 'class="old"' in answer.text else ""


def _pages(ask: Ask, served: Served) -> httpx.Client:
    client = ask("admin")
    client.base_url = httpx.URL(served.url)
    return client
