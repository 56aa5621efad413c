"""A job token opens the stream of one job, for some time and for pages of listed origins; nothing else."""

import asyncio
import time

import httpx
import psycopg
import pytest

from sereno import ConfigurationError, InvalidArguments, Sereno
from sereno.access.operations import create, revoke
from sereno.jobs.attempt import Dead
from sereno.jobs.job_token import PREFIX, JobReader, make_token, read_token
from sereno.notifications.recipients import inbox_token
from sereno.notifications.recipients.inbox_token import InboxReader
from sereno.server.api.jobs import job_stream
from sereno.server.shared import authenticator
from tests.server.api.conftest import PLAIN, Ask, Served
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
from tests.server.api.notifications.test_inbox_cors import ALLOWED, OTHER_ORIGIN, PREFLIGHT, SHOP, send
from tests.server.api.notifications.test_inbox_stream import FrozenClock

SECRET = "s" * 32
JSON = {"Accept": "application/json"}


def get(served: Served, path: str, token: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} | JSON
    return httpx.get(f"{served.url}{path}", headers=headers, **PLAIN)


def test_a_token_is_valid_for_one_job_until_it_expires(app: Sereno) -> None:
    with pytest.raises(ConfigurationError, match="SERENO_SECRET"):
        app.jobs.token(1)
    app.override(secret=SECRET)
    token = app.jobs.token(7, valid_for="1h")
    reader = read_token(SECRET, token, 0)
    assert reader is not None
    assert reader.job == 7
    assert read_token(SECRET, token, reader.until - 1) == reader
    assert read_token(SECRET, token, reader.until) is None
    assert read_token("t" * 32, token, 0) is None
    for wrong in (0, "0s", "400d"):
        with pytest.raises(InvalidArguments, match="valid_for"):
            app.jobs.token(7, valid_for=wrong)
    for job in (-1, 2**63):
        with pytest.raises(InvalidArguments, match="job_id"):
            app.jobs.token(job)


def test_no_character_of_a_token_can_be_changed(app: Sereno) -> None:
    app.override(secret=SECRET)
    token = app.jobs.token(7)
    for place in range(len(token)):
        other = "A" if token[place] != "A" else "B"
        assert read_token(SECRET, token[:place] + other + token[place + 1 :], 0) is None, place
    for wrong in (token[:-1], token + "A", token + "=", PREFIX, "", PREFIX + "é", PREFIX + "A" * 5000):
        assert read_token(SECRET, wrong, 0) is None


def test_a_token_opens_the_stream_of_its_job_alone(app: Sereno, served: Served, connection: psycopg.Connection) -> None:
    app.override(secret=SECRET)
    job, other = RunningJob.start(connection), RunningJob.start(connection)
    token = app.jobs.token(job.id)
    assert get(served, job.path, token).json()["state"] == "running"
    assert get(served, other.path, token).status_code == 404
    assert get(served, stream_path(10**9), app.jobs.token(10**9)).status_code == 404
    for path in (
        f"/api/v1/jobs/{job.id}",
        f"/api/v1/jobs/{job.id}/why",
        "/api/v1/jobs",
        "/api/v1/stream",
        "/api/v1/inbox",
    ):
        assert get(served, path, token).status_code == 401, path
    bad = (
        make_token(SECRET, JobReader(job.id, 1_000_000)),
        make_token("t" * 32, JobReader(job.id, 2**40)),
        # Signed with the same secret for another purpose.
        PREFIX + inbox_token.make_token(SECRET, InboxReader(None, "ada", 2**40)).removeprefix(inbox_token.PREFIX),
        PREFIX,
    )
    for wrong in bad:
        refused = get(served, job.path, wrong)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer"), wrong
    app.override(secret="t" * 32)
    assert get(served, job.path, token).status_code == 401


def test_a_user_of_a_tenant_watches_jobs_of_that_tenant(ask: Ask, connection: psycopg.Connection) -> None:
    job = RunningJob.start(connection, tenant="a")
    path = f"/jobs/{job.id}/stream"
    assert ask("viewer").get(path, headers=JSON).status_code == 200
    assert ask("viewer", tenant="a").get(path, headers=JSON).status_code == 200
    assert ask("viewer", tenant="b").get(path, headers=JSON).status_code == 404
    assert ask(None).get(path, headers=JSON).status_code == 401
    # Without a row of the job its tenant is unknown.
    gone = RunningJob.start(connection, tenant="a")
    gone.emit("a")
    gone.end(keep_history=False)
    path = f"/jobs/{gone.id}/stream"
    assert ask("viewer").get(path, headers=JSON).status_code == 200
    assert ask("viewer", tenant="a").get(path, headers=JSON).status_code == 404


async def test_only_users_get_the_error_of_a_job(app: Sereno, served: Served, connection: psycopg.Connection) -> None:
    app.override(secret=SECRET)
    job = RunningJob.start(connection)
    job.end(Dead("card of ana@example.lv was refused"))
    users = {role: app.database.run(create(role, role, actor="test")).secret for role in ("viewer", "operator")}
    async with stream_client(served, app.jobs.token(job.id)) as client:
        assert await all_events(client, job.path) == [state("dead"), end("dead")]
    async with stream_client(served, users["operator"]) as client:
        shown = await all_events(client, job.path)
        assert shown == [state("dead"), end("dead", error="card of ana@example.lv was refused")]
    async with stream_client(served, users["viewer"]) as client:
        (_, data) = (await all_events(client, job.path))[-1]
        assert "was refused" in data["error"]
        assert "ana@" not in data["error"]


async def test_a_stream_ends_with_its_token(
    app: Sereno, served: Served, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.override(secret=SECRET)
    until = int(time.time()) + 3600
    # The token ends soon, but the wall clock is frozen: a slow test is not too late.
    clock = FrozenClock(until - 0.2)
    monkeypatch.setattr(job_stream, "time", clock)
    # Nothing else ends the stream.
    monkeypatch.setattr(job_stream, "TRUST_SECONDS", 600.0)
    job = RunningJob.start(connection)
    job.emit("a")
    async with stream_client(served, make_token(SECRET, JobReader(job.id, until))) as client:
        async with asyncio.timeout(30), client.stream("GET", job.path) as answer:
            events = streamed_events(answer)
            assert [await anext(events) for _ in range(2)] == [state("running"), chunk(1, 1, "a")]
            clock.now = until
            job.emit("b")
            assert [event async for event in events] == []
        assert (await client.get(job.path)).status_code == 401


@pytest.mark.slow
async def test_the_stream_of_a_user_ends_with_the_revoked_token(
    app: Sereno, served: Served, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "FRESH_SECONDS", 0.1)
    monkeypatch.setattr(job_stream, "TRUST_SECONDS", 0.1)
    job = RunningJob.start(connection)
    secret = app.database.run(create("ann", "viewer", actor="test")).secret
    async with stream_client(served, secret) as ann, ann.stream("GET", job.path) as answer:
        events = streamed_events(answer)
        assert await anext(events) == state("running")
        await asyncio.to_thread(app.database.run, revoke("ann", actor="test"))
        async with asyncio.timeout(30):
            assert [event async for event in events] == []


def test_pages_of_listed_origins_read_streams_with_job_tokens(
    app: Sereno, served: Served, connection: psycopg.Connection
) -> None:
    app.override(secret=SECRET, inbox_origins=[SHOP])
    job = RunningJob.start(connection)
    token, inbox = app.jobs.token(job.id), app.inbox.token("ada")
    preflight = send(served, "OPTIONS", job.path, SHOP, **PREFLIGHT)
    assert (preflight.status_code, preflight.headers[ALLOWED]) == (204, SHOP)
    assert preflight.headers["access-control-allow-methods"] == "GET"
    assert preflight.headers["access-control-allow-headers"] == "Authorization, Last-Event-ID"
    assert "access-control-allow-credentials" not in preflight.headers
    found = send(served, "GET", job.path, SHOP, Authorization=f"Bearer {token}", **JSON)
    assert (found.status_code, found.headers[ALLOWED]) == (200, SHOP)
    # Errors are readable, too: then the page requests a new token from its own server.
    assert send(served, "GET", job.path, SHOP, Authorization=f"Bearer {PREFIX}x").headers[ALLOWED] == SHOP
    user = app.database.run(create("ann", "admin", actor="test")).secret
    closed = (
        ("GET", job.path, OTHER_ORIGIN, token),
        ("OPTIONS", job.path, OTHER_ORIGIN, token),
        ("GET", job.path, f"{SHOP}.evil.example", token),
        ("GET", job.path, SHOP, user),
        ("GET", job.path, SHOP, inbox),
        ("GET", "/api/v1/inbox", SHOP, token),
        ("GET", f"/api/v1/jobs/{job.id}", SHOP, token),
        ("OPTIONS", f"/api/v1/jobs/{job.id}", SHOP, token),
        ("OPTIONS", f"{job.path}/", SHOP, token),
    )
    for method, path, origin, shown in closed:
        more = PREFLIGHT if method == "OPTIONS" else {"Authorization": f"Bearer {shown}", **JSON}
        answer = send(served, method, path, origin, **more)
        assert not [name for name in answer.headers if name.startswith("access-control-")], (method, path, origin)
