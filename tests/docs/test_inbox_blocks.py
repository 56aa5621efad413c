"""The recipe of the inbox in a real browser, with the HTML, script, style and policy of the page."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psycopg
import pytest
from playwright.sync_api import BrowserContext, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from sereno.server.web.static_files import all_files
from tests.docs.pages import ROOT, only
from tests.docs.test_docs import TIMEOUT, environment, run_program
from tests.facts import one, until
from tests.server.web.chromium import Chromium
from tests.server.web.conftest import running_chromium
from tests.server.web.running_server import running
from tests.warm_process import WarmProcess

__all__ = ["running_chromium"]

PAGE = ROOT / "docs" / "recipes" / "inbox.md"
# The origin that the page uses.
ORIGIN = "https://shop.example.com"
POLICY = "Content-Security-Policy: "
STYLE = ("</head>", '<link rel="stylesheet" href="/shop.css"></head>')


@dataclass
class Shop:
    """The application of the recipe: the page, its script, and `shop.py` behind a sign-in."""

    module: ModuleType
    directory: Path
    database_url: str
    user: SimpleNamespace | None
    context: BrowserContext | None = None
    url: str = ""
    is_styled: bool = False
    console_errors: list[str] = field(default_factory=list)

    def routes(self) -> Starlette:
        def text(kind: str, content: Callable[[], str]) -> Callable[[Request], Response]:
            return lambda _: Response(content(), media_type=kind, headers=self._policy())

        async def signed_in(scope: Any, receive: Any, send: Any) -> None:
            await self.module.api({**scope, "user": self.user}, receive, send)

        return Starlette(
            routes=[
                Route("/", text("text/html", self._html)),
                Route("/shop.js", text("text/javascript", lambda: only(PAGE, "js"))),
                Route("/shop.css", text("text/css", lambda: only(PAGE, "css"))),
                Route("/orders/1042", text("text/html", lambda: "<!doctype html><title>Order 1042</title>")),
                Mount("/", signed_in),
            ]
        )

    def _html(self) -> str:
        html = only(PAGE, "html").replace(ORIGIN, self.url)
        return html.replace(*STYLE) if self.is_styled else html

    def _policy(self) -> dict[str, str]:
        name, _, policy = only(PAGE, "", beginning=POLICY).replace(ORIGIN, self.url).rstrip().partition(": ")
        return {name: f"{policy}; style-src 'self'" if self.is_styled else policy}

    def open(self) -> Page:
        assert self.context is not None
        page = self.context.new_page()
        page.add_init_script(
            "window.received = []; document.addEventListener('sereno-signed-out', (event) => received.push(event.type))"
        )
        page.on(
            "console",
            lambda message: self.console_errors.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.goto(f"{self.url}/")
        return page

    def notify(self) -> None:
        """Run step three of the page."""
        program = self.directory / "notify.py"
        program.write_text(only(PAGE, "python", beginning="from shop import"))
        run_program(program, self.database_url)

    @contextmanager
    def worker(self) -> Iterator[None]:
        process = WarmProcess(
            [sys.executable, "-m", "sereno", "worker", "shop.py:app"],
            cwd=self.directory,
            env=environment(self.database_url),
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(TIMEOUT)


@pytest.fixture
def shop(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running_chromium: Chromium
) -> Iterator[Shop]:
    monkeypatch.setenv("SERENO_DATABASE_URL", database_url)
    monkeypatch.setenv("SERENO_SECRET", "s" * 32)
    program = tmp_path / "shop.py"
    program.write_text(only(PAGE, "python", beginning="from dataclasses import"))
    spec = importlib.util.spec_from_file_location("shop_of_the_inbox", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    made = Shop(module, tmp_path, database_url, SimpleNamespace(id=7))
    with running(made.routes()) as made.url, running_chromium.in_use() as browser:
        made.context = browser.new_context(locale="de")
        yield made
        made.context.close()
    module.app.close()


def bell(page: Page, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


@pytest.mark.slow
def test_a_notification_appears_in_the_page(shop: Shop, connection: psycopg.Connection) -> None:
    page = shop.open()
    # In the language of the page, not of the browser.
    expect(bell(page, "Notificaciones")).to_be_visible()
    shop.notify()
    with shop.worker():
        until(lambda: one(connection, "select count(*) from sereno.inbox"), TIMEOUT)
    expect(bell(page, "Notificaciones, 1 sin leer")).to_be_visible()
    bell(page, "Notificaciones, 1 sin leer").click()
    expect(page.get_by_role("listitem")).to_contain_text("We pack it today.")
    page.get_by_role("link", name="Order 1042 is paid").click()
    expect(page).to_have_title("Order 1042")
    assert one(connection, "select key from sereno.recipients") == "user:7"
    assert shop.console_errors == [], "the policy of the page is not sufficient"


@pytest.mark.slow
def test_the_page_receives_an_event_when_no_user_is_signed_in(shop: Shop) -> None:
    shop.user = None
    page = shop.open()
    until(lambda: "sereno-signed-out" in page.evaluate("received"))


@pytest.mark.slow
def test_the_style_of_the_page_sets_the_colours_of_the_element(shop: Shop, connection: psycopg.Connection) -> None:
    shop.is_styled = True
    shop.module.app.recipients.upsert("user:7")
    connection.execute(
        "insert into sereno.inbox (recipient_id, delivery_id, event, title, body) "
        "select id, 1, 'order.paid', 'Paid', '' from sereno.recipients"
    )
    badge = shop.open().locator("sereno-inbox .badge")
    expect(badge).to_be_visible()
    (colour,) = set(re.findall(r"--sereno-\w+: #(\w+);", only(PAGE, "css")))
    red, green, blue = bytes.fromhex(colour)
    expect(badge).to_have_css("background-color", f"rgb({red}, {green}, {blue})")


def test_the_page_names_exactly_the_style_properties_that_exist() -> None:
    known = set(re.findall(r"var\((--sereno-[\w-]+)", all_files()["inbox.js"].content.decode()))
    assert len(known) > 5
    assert set(re.findall(r"--sereno-[\w-]+", PAGE.read_text())) == known
