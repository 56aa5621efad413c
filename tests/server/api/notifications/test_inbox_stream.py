"""The stream of an inbox sends changes to its owner only, and all streams share one query."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.operations import create, revoke
from sereno.notifications.recipients.inbox_queries import MOST_UNREAD, inbox_states
from sereno.notifications.recipients.inbox_token import InboxReader, make_token
from sereno.notifications.recipients.rows import InboxState
from sereno.server.api.notifications import inbox, inbox_stream, inbox_watch
from sereno.server.shared import authenticator
from tests.facts import auntil
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Served
from tests.server.web.outages import unavailable

SECRET = "s" * 32
PATH = "/api/v1/inbox/stream"
Put = Callable[..., int]


@pytest.fixture
def put(app: Sereno, connection: psycopg.Connection) -> Put:
    """Return a function that inserts messages for ada of a tenant and returns the newest id."""
    app.override(secret=SECRET)
    numbers = itertools.count(1)
    for tenant in ("a", "b"):
        app.recipients.upsert("ada", tenant=tenant)

    def message(tenant: str = "a", count: int = 1) -> int:
        rows = connection.execute(
            "insert into sereno.inbox (recipient_id, delivery_id, event, title, body) "
            "select recipients.id, unnest(%s::bigint[]), 'order.paid', 'Paid', '' "
            "from sereno.recipients where tenant = %s and key = 'ada' returning inbox.id",
            [[next(numbers) for _ in range(count)], tenant],
        ).fetchall()
        connection.commit()
        return max(int(row[0]) for row in rows)

    return message


@pytest.fixture
def context(served: Served) -> Any:
    return served.config.app._context  # type: ignore[union-attr]  # our application


def client(served: Served, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=served.url,
        headers={"Authorization": f"Bearer {token}", "Accept": "text/event-stream"},
        timeout=30,
        trust_env=False,
        verify=NO_CERTIFICATES,
        limits=httpx.Limits(max_connections=100),
    )


async def streamed_states(answer: httpx.Response) -> AsyncIterator[tuple[int, int | None]]:
    """Yield the unread count and the newest message id of each event of the stream."""
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            state = json.loads(line.removeprefix("data: "))
            yield state["unread"], state["newest"]


@pytest.mark.slow
async def test_the_owner_gets_new_and_read_messages(app: Sereno, served: Served, put: Put) -> None:
    first = put()
    token = app.inbox.token("ada", tenant="a")
    async with client(served, token) as ada:
        plain = await ada.get(PATH, headers={"Accept": "application/json"})
        assert plain.json() == {"unread": 1, "newest": first}
        async with ada.stream("GET", PATH) as answer:
            states = streamed_states(answer)
            assert await anext(states) == (1, first)
            # A message for another recipient is not sent: the next event is about the owner's own message.
            put("b")
            second = put()
            assert await anext(states) == (2, second)
            await ada.post("/api/v1/inbox/mark", json={"what": "read", "ids": [second]})
            assert await anext(states) == (1, second)
            await ada.post("/api/v1/inbox/mark", json={"what": "archived"})
            assert await anext(states) == (0, None)


async def test_a_recipient_who_does_not_exist_yet_has_no_messages(app: Sereno, served: Served, put: Put) -> None:
    put()
    async with client(served, app.inbox.token("bob", tenant="a")) as bob, bob.stream("GET", PATH) as answer:
        assert await anext(streamed_states(answer)) == (0, None)


class FrozenClock:
    """A wall clock that the test sets; the monotonic clock runs."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now


async def test_a_stream_ends_with_its_token(served: Served, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    until = int(time.time()) + 3600
    # The token ends soon, but the wall clock is frozen: a slow test is not too late.
    clock = FrozenClock(until - 0.2)
    for module in (inbox, inbox_stream):
        monkeypatch.setattr(module, "time", clock)
    # Nothing else ends the stream.
    monkeypatch.setattr(inbox_stream, "TRUST_SECONDS", 600.0)
    put()
    async with client(served, make_token(SECRET, InboxReader("a", "ada", until))) as ada:
        async with asyncio.timeout(30), ada.stream("GET", PATH) as answer:
            states = streamed_states(answer)
            assert await anext(states) == (1, 1)
            clock.now = until
            put()
            assert [each async for each in states] == []
        again = await ada.get(PATH)
        assert again.status_code == 401
        assert again.headers["www-authenticate"] == "Bearer"


@pytest.mark.slow
async def test_the_stream_of_an_admin_ends_with_the_revoked_token(
    app: Sereno, served: Served, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "FRESH_SECONDS", 0.1)
    monkeypatch.setattr(inbox_stream, "TRUST_SECONDS", 0.1)
    put()
    secret = app.database.run(create("ann", "admin", actor="test")).secret
    inbox_params = {"recipient": "ada", "tenant": "a"}
    async with client(served, secret) as ann, ann.stream("GET", PATH, params=inbox_params) as answer:
        states = streamed_states(answer)
        assert await anext(states) == (1, 1)
        await asyncio.to_thread(app.database.run, revoke("ann", actor="test"))
        async with asyncio.timeout(30):
            assert [each async for each in states] == []


@pytest.mark.slow
async def test_an_idle_stream_sends_comments(
    app: Sereno, served: Served, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_stream, "TRUST_SECONDS", 0.1)
    monkeypatch.setattr(inbox_stream, "SILENCE_SECONDS", 0.1)
    put()
    async with client(served, app.inbox.token("ada", tenant="a")) as ada, ada.stream("GET", PATH) as answer:
        lines = answer.aiter_lines()
        async with asyncio.timeout(30):
            assert await anext(lines) == "retry: 2000"
            while await anext(lines) != ": nothing new":
                pass


@pytest.mark.slow
async def test_streams_above_the_limit_are_refused_until_one_ends(
    app: Sereno, served: Served, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put()
    monkeypatch.setattr(inbox_watch, "MOST_OF_ONE", 2)
    monkeypatch.setattr(inbox_watch, "MOST_WATCHERS", 3)
    async with (
        client(served, app.inbox.token("ada", tenant="a")) as ada,
        client(served, app.inbox.token("ada", tenant="b")) as other,
    ):
        async with ada.stream("GET", PATH) as one, ada.stream("GET", PATH) as two:
            # A client that closes its stream frees it.
            opened = [streamed_states(one), streamed_states(two)]
            assert [await anext(each) for each in opened] == [(1, 1), (1, 1)]
            refused = await ada.get(PATH)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
            assert refused.headers["content-type"] == "application/problem+json"
            async with other.stream("GET", PATH) as three:
                opened.append(streamed_states(three))
                assert await anext(opened[-1]) == (0, None)
                assert (await other.get(PATH)).status_code == 503
            # A refused client can still poll.
            assert (await ada.get(PATH, headers={"Accept": "application/json"})).json()["unread"] == 1
        await auntil(lambda: not served.server_state.tasks)
        async with ada.stream("GET", PATH) as again:
            assert await anext(streamed_states(again)) == (1, 1)


@pytest.mark.slow
async def test_a_tenant_has_a_limit_of_streams_over_all_its_inboxes(
    app: Sereno, served: Served, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inbox_watch.MOST_OF_TENANT * 4 <= inbox_watch.MOST_WATCHERS
    monkeypatch.setattr(inbox_watch, "MOST_OF_TENANT", 2)
    async with AsyncExitStack() as streams:

        async def listen(key: str, tenant: str | None) -> int:
            owner = await streams.enter_async_context(client(served, app.inbox.token(key, tenant=tenant)))
            answer = await streams.enter_async_context(owner.stream("GET", PATH))
            if answer.status_code == 200:
                opened.append(streamed_states(answer))
                await anext(opened[-1])
            return answer.status_code

        opened: list[AsyncIterator[tuple[int, int | None]]] = []
        assert [await listen(key, "a") for key in ("ada", "bob", "eve")] == [200, 200, 503]
        assert await listen("ada", "b") == 200
        assert [await listen(key, None) for key in ("ada", "bob", "eve")] == [200, 200, 200]


@pytest.mark.slow
async def test_an_admin_cannot_watch_an_inbox_that_does_not_exist(app: Sereno, served: Served, put: Put) -> None:
    put()
    for tenant in (None, "a"):
        secret = app.database.run(create(f"of {tenant}", "admin", tenant=tenant, actor="test")).secret
        async with client(served, secret) as admin:
            for accept in ("text/event-stream", "application/json"):
                inbox_params = {"recipient": "unknown", "tenant": "a"}
                answer = await admin.get(PATH, params=inbox_params, headers={"Accept": accept})
                assert answer.status_code == 404, (tenant, accept)
                assert "unknown" in answer.json()["detail"]


@pytest.mark.slow
async def test_any_number_of_streams_make_one_query_a_second(
    app: Sereno, served: Served, context: Any, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[float] = []
    read = context.read

    async def counting(operation: Any, **options: Any) -> Any:
        queries.append(time.monotonic())
        return await read(operation, **options)

    monkeypatch.setattr(context, "read", counting)

    async def listen(owner: httpx.AsyncClient, received: asyncio.Semaphore) -> None:
        async with owner.stream("GET", PATH) as answer:
            async for _ in streamed_states(answer):
                received.release()

    async with (
        client(served, app.inbox.token("ada", tenant="a")) as ada,
        client(served, app.inbox.token("ada", tenant="b")) as other,
    ):
        received = asyncio.Semaphore(0)
        listeners = [asyncio.create_task(listen(owner, received)) for owner in (ada, other) for _ in range(15)]
        for _ in range(3):
            put("a")
            put("b")
            for _ in range(30):
                await received.acquire()
        for each in listeners:
            each.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    assert 3 <= len(queries) <= queries[-1] - queries[0] + 2
    before = len(queries)
    await auntil(lambda: not served.server_state.tasks)
    assert len(queries) - before <= 2, "queries continue although no stream is open"


@pytest.mark.slow
async def test_a_stream_survives_an_outage_of_the_database(
    app: Sereno, served: Served, put: Put, connection: psycopg.Connection, server_url: str, database_url: str
) -> None:
    first = put()
    async with client(served, app.inbox.token("ada", tenant="a")) as ada, ada.stream("GET", PATH) as answer:
        states = streamed_states(answer)
        assert await anext(states) == (1, first)
        connection.close()
        with unavailable(server_url, database_url):
            refused = await ada.get(PATH, headers={"Accept": "application/json"})
            assert refused.status_code == 503
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as back:
            await back.execute("update sereno.inbox set read_at = sereno.now()")
        assert await anext(states) == (0, first)


def test_the_unread_count_is_bounded(app: Sereno, put: Put) -> None:
    newest = put(count=MOST_UNREAD + 20)
    found = app.database.run(inbox_states([("b", "ada"), (None, "unknown"), ("a", "ada")]))
    assert found == [InboxState(0, None), InboxState(0, None), InboxState(MOST_UNREAD, newest)]
