"""`<sereno-job>` in a page of another origin with a strict Content-Security-Policy."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from playwright.sync_api import ConsoleMessage, Dialog, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sereno import Sereno
from sereno.jobs.attempt import Dead, ReleasedAttempt
from sereno.jobs.job_token import JobReader, make_token
from sereno.server.api.jobs import job_stream, job_watch
from sereno.server.web.static_files import all_files
from tests.facts import until
from tests.server.api.conftest import Served
from tests.server.api.jobs.stream_client import RunningJob
from tests.server.web.chromium import Chromium
from tests.server.web.running_server import running
from tests.server.web.visit import DARK_PHONE, LIGHT_PHONE, InspectPage

SECRET = "s" * 32
LOCALE: dict[str, Any] = {"locale": "en", "timezone_id": "UTC"}
HOSTILE = "<img src=x onerror=alert(1)>'\"&amp;\u202e"
STYLE = (
    ":root{color-scheme:light}@media (prefers-color-scheme:dark){:root{color-scheme:dark}}"
    "body{margin:0;font-family:sans-serif;background:Canvas;color:CanvasText}"
)
HTML = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A shop</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/shop.css">
<script type="module" src="/received.js"></script>
<script type="module" src="{server}/job.js"></script></head>
<body><main><h1>A report</h1><sereno-job src="{server}{path}" {attributes}></sereno-job></main></body></html>"""
# Loaded before the element, which may dispatch an event at once.
LISTENERS = """
window.received = [];
for (const name of ["state", "progress", "chunk", "end"])
  document.addEventListener(`sereno-job-${name}`, ({ detail }) => received.push([name, detail]));
document.addEventListener("sereno-signed-out", () => received.push(["signed out", null]));
const job = document.querySelector("sereno-job");
if (!job.hasAttribute("token")) job.getToken = async () => (await fetch("/token")).text();
"""


@dataclass
class Shop:
    """A server of another origin whose pages embed the progress of a job."""

    app: Sereno
    server: str
    job: RunningJob
    chromium: Chromium
    url: str = ""
    attributes: str = ""
    tokens: list[str] = field(default_factory=list)
    opened: ExitStack = field(default_factory=ExitStack)
    problems: list[str] = field(default_factory=list)

    def routes(self) -> Starlette:
        def page(_: Request) -> Response:
            policy = (
                f"default-src 'none'; script-src 'self' {self.server}/; connect-src 'self' {self.server}/; "
                "style-src 'self'; img-src 'self'; base-uri 'none'; require-trusted-types-for 'script'"
            )
            drawn = HTML.format(server=self.server, path=self.job.path, attributes=self.attributes)
            return Response(drawn, media_type="text/html", headers={"Content-Security-Policy": policy})

        def token(_: Request) -> Response:
            return PlainTextResponse(self.tokens.pop(0) if self.tokens else self.app.jobs.token(self.job.id))

        def text(content: str, kind: str) -> Callable[[Request], Response]:
            return lambda _: Response(content, media_type=kind)

        return Starlette(
            routes=[
                Route("/", page),
                Route("/token", token),
                Route("/received.js", text(LISTENERS, "text/javascript")),
                Route("/shop.css", text(STYLE, "text/css")),
                Route("/favicon.ico", text("", "image/x-icon")),
            ]
        )

    def open(self) -> Page:
        page = self.chromium.open_page(dark=False, width=1000, height=800, **LOCALE)
        self.opened.callback(self.chromium.return_page, page, **LOCALE)
        listeners: dict[Any, Callable[[Any], None]] = {
            "console": self._logged,
            "pageerror": lambda error: self.problems.append(str(error)),
            "dialog": self._dismiss,
        }
        for event, listener in listeners.items():
            page.on(event, listener)
            self.opened.callback(page.remove_listener, event, listener)
        page.goto(f"{self.url}/")
        return page

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _dismiss(self, dialog: Dialog) -> None:
        self.problems.append(dialog.message)
        dialog.dismiss()


@pytest.fixture
def shop(app: Sereno, served: Served, connection: psycopg.Connection, running_chromium: Chromium) -> Iterator[Shop]:
    connection.autocommit = True
    made = Shop(app, served.url, RunningJob.start(connection), running_chromium)
    with running(made.routes()) as url, running_chromium.in_use(), made.opened:
        made.url = url
        app.override(secret=SECRET, inbox_origins=[url])
        yield made
    assert made.problems == []


def received(page: Page, name: str) -> list[Any]:
    return [detail for event, detail in page.evaluate("received") if event == name]


@pytest.mark.quick
def test_the_element_shows_a_job_until_it_ends(shop: Shop) -> None:
    page = shop.open()
    bar = page.get_by_role("progressbar", name="Progress")
    expect(page.get_by_role("status")).to_have_text("Running")
    assert bar.get_attribute("aria-valuenow") is None
    shop.job.progress(0.4, HOSTILE)
    expect(bar).to_have_attribute("aria-valuenow", "40")
    expect(page.locator("sereno-job .note")).to_have_text(HOSTILE)
    shop.job.emit("Hel", {"html": HOSTILE})
    until(lambda: len(received(page, "chunk")) == 2)
    assert received(page, "chunk")[1] == {"number": 2, "attempt": 1, "value": {"html": HOSTILE}}
    shop.job.emit("lo")
    shop.job.end()
    expect(page.get_by_role("status")).to_have_text("Done")
    expect(bar).to_have_attribute("aria-valuenow", "100")
    assert [each["number"] for each in received(page, "chunk")] == [1, 2, 3]
    assert received(page, "end") == [{"state": "succeeded", "attempt": 1}]
    assert page.locator("sereno-job img").count() == 0
    assert page.evaluate("document.documentElement.outerHTML").count("srj_") == 0


@pytest.mark.slow
def test_an_interrupted_stream_continues_after_the_last_chunk(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    # Every stream ends after its first event or two.
    monkeypatch.setattr(job_stream, "LONGEST_SECONDS", 0.2)
    page = shop.open()
    for number in range(1, 4):
        shop.job.emit(number)
        until(lambda: len(received(page, "chunk")) == number)  # noqa: B023 - called before the next number
    shop.job.end(ReleasedAttempt("shutdown"))
    shop.job.start_again()
    shop.job.emit("again")
    shop.job.end(Dead("no paper"))
    expect(page.get_by_role("status")).to_have_text("Failed")
    until(lambda: received(page, "end"))
    numbers = [(each["attempt"], each["number"]) for each in received(page, "chunk")]
    assert numbers == [(1, 1), (1, 2), (1, 3), (2, 1)]
    assert received(page, "end") == [{"state": "dead", "attempt": 2}]


@pytest.mark.slow
def test_an_expired_token_is_renewed_or_reported(shop: Shop) -> None:
    ended = make_token(SECRET, JobReader(shop.job.id, 1_000_000))
    shop.tokens = [ended]
    page = shop.open()
    expect(page.get_by_role("status")).to_have_text("Running")
    shop.attributes = f'token="{ended}"'
    page.reload()
    until(lambda: page.evaluate("received.length"))
    assert page.evaluate("received") == [["signed out", None]]
    shop.problems[:] = [problem for problem in shop.problems if "401" not in problem]


@pytest.mark.slow
def test_the_element_polls_when_there_is_no_free_stream(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_watch, "MOST_OF_ONE", 0)
    shop.job.progress(0.25, "a quarter")
    shop.job.end(Dead("no paper"))
    page = shop.open()
    expect(page.get_by_role("status")).to_have_text("Failed")
    assert received(page, "end") == [{"state": "dead", "attempt": 1}]
    shop.problems[:] = [problem for problem in shop.problems if "503" not in problem]


@pytest.mark.slow
def test_the_element_uses_the_language_of_its_page(shop: Shop, subtests: pytest.Subtests) -> None:
    page = shop.open()
    for language, name, running_word in (("es", "Progreso", "En curso"), ("pt-BR", "Progresso", "Em curso")):
        with subtests.test(language=language):
            shop.attributes = f'lang="{language}"'
            page.reload()
            expect(page.get_by_role("progressbar", name=name)).to_be_visible()
            expect(page.get_by_role("status")).to_have_text(running_word)


@pytest.mark.slow
def test_the_element_is_accessible(shop: Shop, inspect_page: InspectPage) -> None:
    shop.job.progress(0.4, "x" * 300)
    page = shop.open()
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "40")
    inspect_page(page, "job-element", (False, 1000), (True, 1000), LIGHT_PHONE, DARK_PHONE)


def test_the_script_is_small() -> None:
    file = all_files()["job.js"]
    assert len(file.packed) < 5_000
    assert len(file.content.splitlines()) < 200
