"""Changes appear on a page without a reload while its user is authorized."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Request, expect

from sereno import Sereno
from sereno.access.operations import create, revoke
from sereno.server import asgi
from sereno.server.api import stream
from sereno.server.shared import authenticator
from tests.facts import until
from tests.server.api.conftest import Served
from tests.server.web.chromium import EMPTY
from tests.server.web.outages import locked, unavailable
from tests.server.web.running_server import running
from tests.server.web.visit import Visits, goto

LISTENERS = 50
SHARED = "the secret of two servers that accept each other's cookies"
ELSEWHERE = """
import sys
from sereno import Sereno
app = Sereno(sys.argv[1])
@app.task(name="elsewhere")
def work() -> None: ...
work.enqueue()
app.close()
"""


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task
    def work() -> None: ...

    return work


@pytest.fixture
def port() -> Iterator[int]:
    """A port that stays reserved for the test, whether a server listens there or not."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def newest(page: Page) -> Any:
    return page.locator("#now-newest tbody tr a").first


@pytest.mark.quick
def test_changes_of_another_process_appear(browse: Visits, database_url: str) -> None:
    page = browse("", role="viewer")
    page.evaluate("window.stays = true")
    expect(page.locator("#now-newest")).to_contain_text("No job yet")
    subprocess.run([sys.executable, "-c", ELSEWHERE, database_url], check=True, timeout=60)
    expect(page.locator("#now-newest tbody")).to_contain_text("elsewhere")
    expect(page.locator("#now-head")).to_contain_text("1 ready")
    assert page.evaluate("window.stays")


@pytest.mark.slow
def test_paused_updates_stay_paused(browse: Visits, work: Any) -> None:
    page, witness = browse(""), browse("")
    page.keyboard.press("l")
    expect(page.locator("#live")).to_have_text("paused")
    first = work.enqueue()
    expect(newest(witness)).to_have_text(str(first.id))
    expect(page.locator("#now-newest")).to_contain_text("No job yet")
    # By now no request is in flight.
    requests: list[str] = []

    def requested(request: Request) -> None:
        requests.append(request.url)

    page.on("request", requested)
    job = work.enqueue()
    expect(newest(witness)).to_have_text(str(job.id))
    assert requests == []
    page.remove_listener("request", requested)
    page.keyboard.press("l")
    expect(newest(page)).to_have_text(str(job.id))


@pytest.mark.slow
def test_missing_values_are_not_loaded_while_paused(browse: Visits, database_url: str) -> None:
    page = browse("operations", own=True)
    missing = page.locator("main .missing")
    # From here on the test controls the clock of the page.
    page.clock.install()
    page.clock.pause_at("2099-01-01T00:00:00Z")

    def is_loaded() -> bool:
        page.clock.fast_forward("01:00")
        return missing.count() == 0

    with locked(database_url, "schedules"):
        goto(page, "./")
        expect(missing).not_to_have_count(0)
        page.keyboard.press("l")
        expect(page.locator("#live")).to_have_text("paused")
        page.evaluate("""() => {
            const fetched = fetch;
            window.requested = [];
            window.fetch = (url, options) => { requested.push(url); return fetched(url, options); };
        }""")
        page.clock.fast_forward("01:00")
        assert page.evaluate("requested") == []
        page.keyboard.press("l")
        assert page.evaluate("requested.length") == 1
    until(is_loaded)


@pytest.mark.slow
def test_a_text_being_typed_is_not_replaced(browse: Visits, work: Any) -> None:
    page, witness = browse(""), browse("")
    page.evaluate("""() => {
        const field = document.createElement('input');
        document.getElementById('now-newest').append(field);
        field.focus();
    }""")
    page.keyboard.type("half a wor")
    job = work.enqueue()
    expect(newest(witness)).to_have_text(str(job.id))
    expect(page.locator("#now-head")).to_contain_text("1 ready")
    expect(page.locator("#now-newest input")).to_have_value("half a wor")
    page.locator("#now-newest input").blur()
    work.enqueue()
    expect(page.locator("#now-newest tbody tr")).to_have_count(2)


@pytest.mark.slow
@pytest.mark.quick
def test_the_page_reconnects_after_a_restart(browse: Visits, database_url: str, port: int) -> None:
    app = Sereno(database_url, secret=SHARED)

    @app.task
    def work() -> None: ...

    browse.forgive(r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET")
    with running(asgi(app), port) as url:
        page = browse("", url=url)
        page.evaluate("window.stays = true")
        expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#live")).to_have_text("no connection")
    expect(page.locator("#now-newest")).to_be_visible()
    job = work.enqueue()
    with running(asgi(app), port):
        expect(newest(page)).to_have_text(str(job.id))
        expect(page.locator("#live")).to_have_text("live")
        assert page.evaluate("window.stays")
        page.goto(EMPTY)
    app.close()


@pytest.mark.slow
def test_a_page_without_a_word_from_its_server_says_how_old_it_is(browse: Visits, database_url: str, port: int) -> None:
    """A stopped server and a cut network close no connection."""
    given = {**os.environ, "SERENO_DATABASE_URL": database_url, "SERENO_SECRET": SHARED}
    command = [sys.executable, "-m", "sereno", "server", "--port", str(port)]
    server = subprocess.Popen(command, env=given, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    browse.forgive("ERR_|TimeoutError|signal timed out")
    try:
        until(lambda: _answers(url))
        page = browse("", url=url)
        expect(page.locator("#live")).to_have_text("live")
        server.send_signal(signal.SIGSTOP)
        expect(page.locator("#live")).to_have_text(re.compile(r"^1\d s old$"), timeout=30_000)
        expect(page.locator("body")).to_have_class(re.compile("old"))
        server.send_signal(signal.SIGCONT)
        expect(page.locator("#live")).to_have_text("live", timeout=30_000)
        expect(page.locator("body")).not_to_have_class(re.compile("old"))
        page.goto(EMPTY)
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code > 0
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_an_outage_of_the_database_leaves_the_page_as_it_is(
    browse: Visits, work: Any, server_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "FRESH_SECONDS", 0.1)
    browse.forgive("status of 503|ERR_INCOMPLETE_CHUNKED")
    first = work.enqueue()
    page = browse("")
    expect(newest(page)).to_have_text(str(first.id))
    with unavailable(server_url, database_url):
        expect(page.locator("#live")).to_have_text("no connection")
        expect(newest(page)).to_have_text(str(first.id))
        expect(page.locator("#problem")).to_have_count(0)
    second = work.enqueue()
    expect(newest(page)).to_have_text(str(second.id))
    expect(page.locator("#live")).to_have_text("live")


@pytest.mark.slow
def test_a_revoked_token_leads_to_the_sign_in_page(
    browse: Visits, app: Sereno, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "FRESH_SECONDS", 0.1)
    monkeypatch.setattr(stream, "TRUST_SECONDS", 0.1)
    browse.forgive("status of 401")
    page = browse("?range=6h", role="viewer")
    app.database.run(revoke(browse.names[-1], actor="test"))
    expect(page).to_have_title("Sign in · sereno")
    expect(page.locator("[name=next]")).to_have_value("?range=6h")


@pytest.mark.slow
async def test_a_stream_ends_with_its_token(app: Sereno, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "FRESH_SECONDS", 0.1)
    monkeypatch.setattr(stream, "TRUST_SECONDS", 0.1)
    secret = app.database.run(create("ann", "viewer", actor="test")).secret
    async with _client(served, secret) as client, client.stream("GET", "/api/v1/stream") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        await asyncio.to_thread(app.database.run, revoke("ann", actor="test"))
        async with asyncio.timeout(30):
            async for _ in lines:
                pass


@pytest.mark.slow
async def test_any_number_of_streams_make_one_query_a_second(
    app: Sereno, served: Served, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[float] = []
    context = served.config.app._context  # type: ignore[union-attr]  # our application
    read = context.read

    async def counting(operation: Any, **options: Any) -> Any:
        queries.append(time.monotonic())
        return await read(operation, **options)

    monkeypatch.setattr(context, "read", counting)
    secret = app.database.run(create("ann", "viewer", actor="test")).secret

    async def listen(client: httpx.AsyncClient, received: asyncio.Semaphore) -> None:
        async with client.stream("GET", "/api/v1/stream") as answer:
            async for line in answer.aiter_lines():
                if line == "event: now":
                    received.release()

    async with _client(served, secret) as client:
        received = asyncio.Semaphore(0)
        listeners = [asyncio.create_task(listen(client, received)) for _ in range(LISTENERS)]
        for _ in range(3):
            await asyncio.to_thread(work.enqueue)
            for _ in range(LISTENERS):
                await received.acquire()
        for each in listeners:
            each.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    assert 3 <= len(queries) <= queries[-1] - queries[0] + 2
    before = len(queries)
    until(lambda: not served.server_state.tasks)
    assert len(queries) - before <= 2, "queries continue although no stream is open"


@pytest.mark.slow
async def test_a_tenants_user_learns_of_changes_without_their_content(app: Sereno, served: Served, work: Any) -> None:
    secret = app.database.run(create("ann", "viewer", tenant="r42", actor="test")).secret
    async with _client(served, secret) as client, client.stream("GET", "/api/v1/stream") as answer:
        await asyncio.to_thread(work.using(tenant="r43").enqueue)
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                assert data == {"number": data["number"], "seen": None, "is_available": True}
                break


def _client(served: Served, secret: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=served.url,
        headers={"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"},
        timeout=30,
        trust_env=False,
        limits=httpx.Limits(max_connections=LISTENERS + 5),
    )
