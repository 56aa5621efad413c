"""The stream of a job sends its state, progress and chunks in order, and all streams share one query."""

import asyncio
import time
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.jobs import transitions
from sereno.jobs.attempt import Dead, ReleasedAttempt
from sereno.jobs.job_stream import PAGE
from sereno.server.api.jobs import job_stream, job_watch
from tests.facts import auntil
from tests.jobs.job_steps import add, do
from tests.server.api.conftest import Served
from tests.server.api.jobs.stream_client import (
    RunningJob,
    all_events,
    chunk,
    end,
    state,
    stream_client,
    stream_path,
    streamed_events,
)
from tests.server.web.outages import unavailable

pytestmark = pytest.mark.slow

SECRET = "s" * 32


@pytest.fixture(autouse=True)
def _secret(app: Sereno) -> None:
    app.override(secret=SECRET)


@pytest.fixture
def context(served: Served) -> Any:
    return served.config.app._context  # type: ignore[union-attr]  # our application


async def test_a_client_gets_state_progress_chunks_and_the_end(
    app: Sereno, served: Served, connection: psycopg.Connection
) -> None:
    (waiting,) = add(connection)
    async with stream_client(served, app.jobs.token(waiting)) as client:
        async with client.stream("GET", stream_path(waiting)) as answer:
            events = streamed_events(answer)
            assert await anext(events) == state("ready", 0)
            job = RunningJob.start(connection)
            assert job.id == waiting
            assert await anext(events) == state("running")
            job.progress(0.5, "half")
            assert await anext(events) == ("progress", {"fraction": 0.5, "note": "half"})
            polled = await client.get(stream_path(waiting), headers={"Accept": "application/json"})
            assert polled.json() == {
                "state": "running",
                "attempt": 1,
                "fraction": 0.5,
                "note": "half",
                "last_chunk": 0,
            }
            job.emit("Hel", {"lo": [1, None, "</script>"]})
            assert await anext(events) == chunk(1, 1, "Hel")
            assert await anext(events) == chunk(1, 2, {"lo": [1, None, "</script>"]})
            job.emit("!")
            job.end()
            # In either order: the last chunk may be read before or with the end.
            *news, last = [event async for event in events]
            assert sorted(news) == [chunk(1, 3, "!"), state("succeeded")]
            assert last == end("succeeded")
        # A later client gets the whole.
        assert await all_events(client, stream_path(waiting)) == [
            state("succeeded"),
            chunk(1, 1, "Hel"),
            chunk(1, 2, {"lo": [1, None, "</script>"]}),
            chunk(1, 3, "!"),
            end("succeeded"),
        ]


async def test_a_client_that_reconnects_gets_each_chunk_once(
    app: Sereno, served: Served, connection: psycopg.Connection
) -> None:
    job = RunningJob.start(connection)
    job.emit(*range(1, 6))
    job.emit(*range(6, 9))
    job.end(Dead("closed"))
    async with stream_client(served, app.jobs.token(job.id)) as client:
        for known in range(9):
            expected = [state("dead"), *(chunk(1, n, n) for n in range(known + 1, 9)), end("dead")]
            assert await all_events(client, job.path, f"1-{known}") == expected
        # Of an earlier attempt, or not from this server.
        for other in ("0-7", "7", "1-", "x", "1-2-3", "9" * 40, "-1-1"):
            assert len(await all_events(client, job.path, other)) == 10, other


async def test_a_new_attempt_starts_a_new_sequence(app: Sereno, served: Served, connection: psycopg.Connection) -> None:
    job = RunningJob.start(connection)
    job.emit("a", "b")
    async with stream_client(served, app.jobs.token(job.id)) as client, client.stream("GET", job.path) as answer:
        events = streamed_events(answer)
        assert [await anext(events) for _ in range(3)] == [state("running"), chunk(1, 1, "a"), chunk(1, 2, "b")]
        job.end(ReleasedAttempt("shutdown"))
        assert await anext(events) == state("ready")
        job.start_again()
        assert await anext(events) == state("running", 2)
        job.emit("A")
        assert await anext(events) == chunk(2, 1, "A")
        # A client that comes back with a chunk of the first attempt gets the second from its beginning.
        async with client.stream("GET", job.path, headers={"Last-Event-ID": "1-2"}) as again:
            other = streamed_events(again)
            assert [await anext(other) for _ in range(2)] == [state("running", 2), chunk(2, 1, "A")]


async def test_a_client_that_is_behind_reads_pages_by_itself(
    app: Sereno, served: Served, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "RECENT_BYTES", 100)
    job = RunningJob.start(connection)
    most = 3 * PAGE
    for number in range(1, most + 1):
        job.emit(number)
    async with stream_client(served, app.jobs.token(job.id)) as client, client.stream("GET", job.path) as answer:
        events = streamed_events(answer)
        assert await anext(events) == state("running")
        assert [await anext(events) for _ in range(most)] == [chunk(1, n, n) for n in range(1, most + 1)]
        # More bytes than are held for all streams.
        job.emit(*["x" * 60] * 5)
        assert [await anext(events) for _ in range(5)] == [chunk(1, most + n, "x" * 60) for n in range(1, 6)]
        job.end()
        assert await anext(events) == state("succeeded")
        assert await anext(events) == end("succeeded")


async def test_a_job_that_leaves_no_row_ends_its_stream(
    app: Sereno, served: Served, connection: psycopg.Connection
) -> None:
    job, silent = RunningJob.start(connection), RunningJob.start(connection)
    (waiting,) = add(connection)
    job.emit("a")
    async with stream_client(served, app.jobs.token(job.id)) as client:
        job.end(keep_history=False)
        assert await all_events(client, job.path) == [state("succeeded"), chunk(1, 1, "a"), end("succeeded")]
    for each, finish in (
        (silent.id, lambda: silent.end(keep_history=False)),
        (waiting, lambda: do(connection, transitions.delete([waiting]))),
    ):
        async with stream_client(served, app.jobs.token(each)) as client:
            async with client.stream("GET", stream_path(each)) as answer:
                events = streamed_events(answer)
                assert (await anext(events))[0] == "state"
                finish()
                assert [name async for name, _ in events] == ["end"]
            assert (await client.get(stream_path(each))).status_code == 404


async def test_an_idle_stream_sends_comments(
    app: Sereno, served: Served, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_stream, "TRUST_SECONDS", 0.1)
    monkeypatch.setattr(job_stream, "SILENCE_SECONDS", 0.1)
    job = RunningJob.start(connection)
    async with stream_client(served, app.jobs.token(job.id)) as client, client.stream("GET", job.path) as answer:
        lines = answer.aiter_lines()
        async with asyncio.timeout(30):
            assert await anext(lines) == "retry: 2000"
            while await anext(lines) != ": nothing new":
                pass


async def test_streams_above_the_limit_are_refused_until_one_ends(
    app: Sereno, served: Served, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job_watch.MOST_OF_TENANT * 4 <= job_watch.MOST_WATCHERS
    monkeypatch.setattr(job_watch, "MOST_OF_ONE", 2)
    monkeypatch.setattr(job_watch, "MOST_OF_TENANT", 3)
    first, second = RunningJob.start(connection, tenant="a"), RunningJob.start(connection, tenant="a")
    async with (
        stream_client(served, app.jobs.token(first.id)) as client,
        stream_client(served, app.jobs.token(second.id)) as other,
    ):
        async with client.stream("GET", first.path) as one, client.stream("GET", first.path) as two:
            opened = [streamed_events(one), streamed_events(two)]
            assert [await anext(each) for each in opened] == [state("running")] * 2
            refused = await client.get(first.path)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
            # A refused client can still poll.
            polled = await client.get(first.path, headers={"Accept": "application/json"})
            assert polled.json()["state"] == "running"
            async with other.stream("GET", second.path) as three:
                opened.append(streamed_events(three))
                assert await anext(opened[-1]) == state("running")
                assert (await other.get(second.path)).status_code == 503, "a tenant has a limit over all its jobs"
        await auntil(lambda: not served.server_state.tasks)
        async with client.stream("GET", first.path) as again:
            assert await anext(streamed_events(again)) == state("running")


async def test_a_thousand_streams_share_one_query_and_its_connection(
    app: Sereno, served: Served, context: Any, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [RunningJob.start(connection) for _ in range(50)]
    queries: list[float] = []
    read = context.read

    async def counting(operation: Any, **options: Any) -> Any:
        queries.append(time.monotonic())
        return await read(operation, **options)

    monkeypatch.setattr(context, "read", counting)
    received = asyncio.Semaphore(0)

    async def listen(job: RunningJob) -> None:
        token = app.jobs.token(job.id)
        async with client.stream("GET", job.path, headers={"Authorization": f"Bearer {token}"}) as answer:
            async for name, _ in streamed_events(answer):
                if name == "chunk":
                    received.release()

    # The group fails with the first stream that does.
    async with asyncio.timeout(90), stream_client(served, "") as client, asyncio.TaskGroup() as group:
        listeners = [group.create_task(listen(job)) for job in jobs for _ in range(20)]
        for number in range(3):
            for job in jobs:
                await asyncio.to_thread(job.emit, number)
            for _ in listeners:
                await received.acquire()
        connections = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        ).fetchone()
        for each in listeners:
            each.cancel()
    assert connections is not None
    assert connections[0] <= app.settings.pool_size
    # One in each beat, and some more while streams open.
    assert len(queries) <= (queries[-1] - queries[0]) / job_watch.GATHER_SECONDS + 2
    assert len(queries) < len(listeners)
    before = len(queries)
    await auntil(lambda: not served.server_state.tasks)
    assert len(queries) - before <= 4, "queries continue although no stream is open"


async def test_a_stream_survives_an_outage_of_the_database(
    app: Sereno, served: Served, connection: psycopg.Connection, server_url: str, database_url: str
) -> None:
    job = RunningJob.start(connection)
    job.emit("a")
    async with stream_client(served, app.jobs.token(job.id)) as client, client.stream("GET", job.path) as answer:
        events = streamed_events(answer)
        assert [await anext(events) for _ in range(2)] == [state("running"), chunk(1, 1, "a")]
        connection.close()
        with unavailable(server_url, database_url):
            pass
        with psycopg.connect(database_url, autocommit=True) as back:
            job.connection = back
            await asyncio.to_thread(job.emit, "b")
            assert await anext(events) == chunk(1, 2, "b")
