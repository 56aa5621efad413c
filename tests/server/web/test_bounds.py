"""Reads, time, memory and streams of each user are limited, so that other users are not affected."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.masking import MASK, is_secret, masked
from sereno.access.operations import create
from sereno.database.statement import Operation, Statement
from sereno.jobs.queries.jobs import pauses, schema_version
from sereno.server.shared import cache, change_feed
from sereno.server.shared import context as shared_context
from sereno.server.shared.authenticator import CURRENT_SHARE, Authenticator
from sereno.server.shared.cache import Cache
from sereno.server.shared.context import MOST_OF_ONE, ServerContext
from sereno.server.shared.http_error import HTTPError
from tests.facts import TIMEOUT, auntil, one
from tests.server.api.conftest import Ask, Served
from tests.server.web.outages import locked

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
# Reads of one user or tenant that run or wait, in these tests; more of them would only take longer.
MOST_WAITING = 20
SLEEPING = (
    "select count(*) from pg_stat_activity "
    "where datname = current_database() and state <> 'idle' and query like 'select pg_sleep%%'"
)
# A naive scan for tokens is slow on this text, where every position may be the start of one.
HOSTILE = "eyJ-"

Serve = Callable[..., Served]


@pytest.fixture
async def context(app: Sereno) -> AsyncIterator[ServerContext]:
    yield ServerContext(app, Authenticator(app.database))
    await app.database.aclose()


# Reads


@pytest.fixture
def few_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shared_context.MOST_WAITING == 100
    monkeypatch.setattr(shared_context, "MOST_WAITING", MOST_WAITING)


def _client(
    app: Sereno, served: Served, name: str, accept: str = "*/*", tenant: str | None = None
) -> httpx.AsyncClient:
    secret = app.database.run(create(name, "viewer", tenant=tenant, actor="test")).secret
    return httpx.AsyncClient(
        base_url=served.url,
        headers={"Authorization": f"Bearer {secret}", "Accept": accept},
        timeout=30,
        trust_env=False,
        limits=httpx.Limits(max_connections=MOST_WAITING + 20),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("few_waiting")
async def test_a_user_with_too_many_reads_waits_and_others_do_not(
    app: Sereno, serve: Serve, connection: psycopg.Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reads last as long as a table is locked, and not only the usual two seconds."""
    app.override(pool_size=2 * MOST_OF_ONE + 2)
    served = serve()
    assert ServerContext.read.__kwdefaults__ is not None
    monkeypatch.setitem(ServerContext.read.__kwdefaults__, "seconds", 60.0)
    async with _client(app, served, "eve") as eve, _client(app, served, "ann") as ann:
        for client in (eve, ann):
            assert (await client.get("/api/v1/operations")).status_code == 200
        with locked(database_url, "schedules"):
            slow = [asyncio.create_task(eve.get("/api/v1/schedules", timeout=60)) for _ in range(MOST_WAITING + 10)]
            await auntil(lambda: sum(each.done() for each in slow) == 10)
            await auntil(lambda: one(connection, WAITING) >= MOST_OF_ONE)
            too_many = [each.result() for each in slow if each.done()]
            assert {(each.status_code, each.headers["retry-after"]) for each in too_many} == {(503, "1")}
            assert "eve has too many requests at once" in too_many[0].json()["detail"]
            assert (await eve.get("/api/v1/operations")).status_code == 503
            assert (await ann.get("/api/v1/operations")).status_code == 200
            assert (await ann.get("/operations")).status_code == 200
            assert (await ann.get("/readyz", headers={"Authorization": ""})).status_code == 200
            assert one(connection, WAITING) == MOST_OF_ONE
        answers = [each.status_code for each in await asyncio.gather(*slow)]
        assert (answers.count(200), answers.count(503)) == (MOST_WAITING, 10)
        assert (await eve.get("/api/v1/operations")).status_code == 200


@pytest.mark.slow
@pytest.mark.usefixtures("few_waiting")
async def test_the_tokens_of_a_tenant_share_its_reads(
    app: Sereno, serve: Serve, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.override(pool_size=2 * MOST_OF_ONE + 2)
    served = serve()
    assert ServerContext.read.__kwdefaults__ is not None
    monkeypatch.setitem(ServerContext.read.__kwdefaults__, "seconds", 60.0)
    async with AsyncExitStack() as clients:
        theirs = [
            await clients.enter_async_context(_client(app, served, f"token {number}", tenant="acme"))
            for number in range(3)
        ]
        other = await clients.enter_async_context(_client(app, served, "other", tenant="globex"))
        for client in (*theirs, other):
            assert (await client.get("/api/v1/operations")).status_code == 200
        with locked(database_url, "schedules"):
            slow = [
                asyncio.create_task(theirs[number % 2].get("/api/v1/schedules", timeout=60))
                for number in range(MOST_WAITING + 10)
            ]
            await auntil(lambda: sum(each.done() for each in slow) == 10)
            refused = await theirs[2].get("/api/v1/operations")
            assert refused.status_code == 503
            assert "the tenant acme has too many requests at once" in refused.json()["detail"]
            assert (await other.get("/api/v1/operations")).status_code == 200
        answers = [each.status_code for each in await asyncio.gather(*slow)]
        assert (answers.count(200), answers.count(503)) == (MOST_WAITING, 10)


@pytest.mark.usefixtures("few_waiting")
async def test_the_number_of_waiting_reads_is_limited(context: ServerContext, database_url: str) -> None:
    async def read_one(user: str) -> Any:
        CURRENT_SHARE.set(user)
        return await context.read(pauses(), seconds=60.0)

    with locked(database_url, "pauses"):
        waiting = [asyncio.create_task(read_one("eve")) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(HTTPError, match="eve has too many requests at once") as refused:
            await asyncio.create_task(read_one("eve"))
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        other = asyncio.create_task(read_one("ann"))
        waiting[-1].cancel()
        await asyncio.wait(waiting[-1:])
        waiting[-1] = asyncio.create_task(read_one("eve"))
    assert await asyncio.gather(*waiting, other) == [[]] * (MOST_WAITING + 1)
    assert context._shares == {}, "the share of a user without reads is not removed"


async def test_the_default_pool_has_connections_for_other_users(context: ServerContext, database_url: str) -> None:
    async def read_one(user: str, operation: Operation[Any]) -> Any:
        CURRENT_SHARE.set(user)
        return await context.read(operation, seconds=60.0)

    with locked(database_url, "pauses"):
        slow = [asyncio.create_task(read_one("eve", pauses())) for _ in range(2 * MOST_OF_ONE)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(TIMEOUT):
                assert await asyncio.create_task(read_one("ann", schema_version()))
        finally:
            for each in slow:
                each.cancel()
            await asyncio.wait(slow)


@pytest.mark.slow
async def test_all_statements_of_a_read_together_have_a_timeout(
    app: Sereno, context: ServerContext, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout of each statement alone is much longer."""
    statements = 0
    size = app.settings.pool_size

    def long() -> Operation[None]:
        nonlocal statements
        while True:
            statements += 1
            yield Statement("select pg_sleep(0.01)")

    with monkeypatch.context() as patched:
        patched.setattr("sereno.server.shared.context.TIMEOUT_FACTOR", 0.1)
        async with asyncio.timeout(TIMEOUT):
            results = await asyncio.gather(
                *(context.read(long(), seconds=20.0) for _ in range(size)), return_exceptions=True
            )
    assert [type(each) for each in results] == [TimeoutError] * size
    assert statements > size, "no statement by itself took too long"
    await auntil(lambda: one(connection, SLEEPING) == 0)
    # Their connections still work: no transaction is left open, and no late result arrives.
    found = await asyncio.gather(*(context.read(pauses()) for _ in range(2 * size)))
    assert found == [[]] * len(found)
    others = "datname = current_database() and pid <> pg_backend_pid()"
    open_transactions = f"select count(*) from pg_stat_activity where {others} and state like 'idle in%%'"
    assert one(connection, open_transactions) == 0


# The cache


async def test_large_results_are_not_cached(context: ServerContext, app: Sereno, database_url: str) -> None:
    cached = Cache(context)
    queries = 0

    def read_one() -> Operation[Any]:
        nonlocal queries
        queries += 1
        return pauses()

    found = await asyncio.gather(*(cached.get("job", read_one, keep=False) for _ in range(5)))
    assert ([each.value for each in found], queries) == ([[]] * 5, 1)
    assert cached._values == {}
    await cached.get("job", read_one, keep=False)
    assert queries == 2
    with locked(database_url, "pauses"):
        assert (await cached.get("job", read_one, keep=False, seconds=0.1)).is_missing


async def test_unused_results_are_dropped(context: ServerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = Cache(context)
    await cached.get("old", pauses)
    await cached.get("used", pauses)
    between = time.monotonic()
    await cached.get("used", pauses, fresh=0.0)
    monkeypatch.setattr(cache, "REMEMBERED_SECONDS", time.monotonic() - between)
    await cached.get("new", pauses)
    assert "old" not in cached._values
    monkeypatch.setattr(cache, "REMEMBERED_SECONDS", 900.0)
    await cached.get("newer", pauses)
    assert "new" in cached._values


# Streams


async def test_streams_of_one_user_are_limited(app: Sereno, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert change_feed.MOST_OF_ONE == 100
    monkeypatch.setattr(change_feed, "MOST_OF_ONE", 2)
    path = "/api/v1/stream"
    async with _client(app, served, "eve", "text/event-stream") as eve, AsyncExitStack() as streams:
        # References, because a stream that is not read any more is closed.
        opened = [(await streams.enter_async_context(eve.stream("GET", path))).aiter_lines() for _ in range(2)]
        for lines in opened:
            while await anext(lines) != "event: now":
                pass
        refused = await eve.get(path)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        assert (await eve.get(path, headers={"Accept": "application/json"})).status_code == 200
        async with (
            _client(app, served, "ann", "text/event-stream") as ann,
            ann.stream("GET", path) as theirs,
        ):
            assert theirs.status_code == 200


@pytest.mark.slow
async def test_streams_of_one_tenant_are_limited_over_all_its_tokens(
    app: Sereno, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert change_feed.MOST_OF_TENANT * 5 <= change_feed.MOST_LISTENERS
    assert change_feed.MOST_OF_TENANTS < change_feed.MOST_LISTENERS
    monkeypatch.setattr(change_feed, "MOST_OF_TENANT", 2)
    monkeypatch.setattr(change_feed, "MOST_OF_TENANTS", 3)
    path = "/api/v1/stream"
    async with AsyncExitStack() as streams:

        async def listen(name: str, tenant: str | None) -> int:
            client = await streams.enter_async_context(_client(app, served, name, "text/event-stream", tenant))
            answer = await streams.enter_async_context(client.stream("GET", path))
            if answer.status_code == 200:
                opened.append(answer.aiter_lines())
                while await anext(opened[-1]) != "event: now":
                    """The stream has not started yet."""
            return answer.status_code

        opened: list[AsyncIterator[str]] = []
        assert [await listen(f"token {number}", "acme") for number in range(4)] == [200, 200, 503, 503]
        assert await listen("another", "globex") == 200
        # All tenants together leave streams for operators.
        assert await listen("a third", "initech") == 503
        assert [await listen(f"operator {number}", None) for number in range(2)] == [200, 200]


# Searches


def test_a_search_by_a_masked_value_is_refused(app: Sereno, ask: Ask, served: Served) -> None:
    @app.task
    def work(account: int, password: str) -> None: ...

    number = work.using(tenant="a").enqueue(7, "hunter2").id
    row, words = f'data-id="{number}"', "args.password is masked: only an operator can search by it"
    for tenant in (None, "a"):
        viewer, operator = ask("viewer", tenant), ask("operator", tenant)
        for client, text, is_refused in (
            (viewer, "args.password:hunter2", True),
            (viewer, "args.password:wrong", True),
            (viewer, "args.account:7", False),
            (operator, "args.password:hunter2", False),
        ):
            page = client.get(f"{served.url}/jobs", params={"q": text})
            assert (page.status_code, words in page.text, row in page.text) == (200, is_refused, not is_refused)


# Masks


@pytest.mark.slow
def test_no_text_is_slow_to_mask() -> None:
    """A hostile text takes at most four times as long as a text of the same size without matches."""
    size = 256 * 1024

    def took(text: str) -> float:
        began = time.process_time()
        assert masked(text) == text
        return time.process_time() - began

    harmless = min(took("abc-" * (size // 4)) for _ in range(2))
    assert min(took(HOSTILE * (size // 4)) for _ in range(2)) < 4 * harmless


def test_names_of_secrets_are_recognized(subtests: pytest.Subtests) -> None:
    for name in ["pass", "db_pass", "pw", "userPw", "jwt", "creds", "aws-creds", "senha", "SENHA"]:
        with subtests.test(name=name):
            assert is_secret(name)
            assert masked({name: "hunter2"}) == {name: MASK}


def test_similar_names_are_not_masked(subtests: pytest.Subtests) -> None:
    for name in ["passenger", "bypass", "pwm", "compass", "desenhar"]:
        with subtests.test(name=name):
            assert masked({name: "hunter2"}) == {name: "hunter2"}


def test_keys_of_providers_are_recognized_by_their_format(subtests: pytest.Subtests) -> None:
    for start in ["sk_live_", "sk_test_", "rk_live_", "pk_live_"]:
        with subtests.test(start=start):
            # Concatenated here, so that no scanner reports it as a real key.
            key = start + "ExampleKey0123456789"
            assert masked(f"charge with {key}, now") == f"charge with {MASK}, now"
            signed = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
            assert masked(f"with {signed} it works") == f"with {MASK} it works"
