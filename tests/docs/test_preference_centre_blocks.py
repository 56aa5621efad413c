"""The recipe of the preference centre in a real browser, with the HTML and script of the page."""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from sereno.server import asgi
from sereno.server.web.static_files import all_files
from tests.docs.pages import ROOT, only
from tests.docs.test_inbox_blocks import ORIGIN, POLICY
from tests.docs.test_inbox_blocks import PAGE as INBOX
from tests.facts import one
from tests.server.web.chromium import Chromium
from tests.server.web.conftest import running_chromium
from tests.server.web.running_server import running

__all__ = ["running_chromium"]

PAGE = ROOT / "docs" / "recipes" / "preference-centre.md"


def load(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import a program of the page under its name."""
    program = directory / f"{name}.py"
    program.write_text(only(PAGE, "python", name=program.name))
    spec = importlib.util.spec_from_file_location(name, program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shop_url(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The application of the recipe, with user 7 signed in."""
    monkeypatch.setenv("SERENO_DATABASE_URL", database_url)
    monkeypatch.setenv("SERENO_SECRET", "s" * 32)
    app = load("shop", tmp_path, monkeypatch).app
    tokens = load("tokens", tmp_path, monkeypatch)
    app.recipients.upsert("user:7", {"email": "ada@example.org"})
    urls: list[str] = []

    def text(kind: str, content: Callable[[], str]) -> Callable[[Request], Response]:
        def answer(_: Request) -> Response:
            name, _sign, policy = only(INBOX, "", beginning=POLICY).replace(ORIGIN, urls[0]).rstrip().partition(": ")
            return Response(content(), media_type=kind, headers={name: policy})

        return answer

    routes = [
        Route("/", text("text/html", lambda: only(PAGE, "html").replace(ORIGIN, urls[0]))),
        Route("/shop.js", text("text/javascript", lambda: only(PAGE, "js"))),
        Route("/preferences-token", lambda _: PlainTextResponse(tokens.preferences_token(7))),
        Route("/favicon.ico", text("image/x-icon", lambda: "")),
        Mount("/sereno", asgi(app)),
    ]
    with running(Starlette(routes=routes)) as url:
        urls.append(url)
        yield url
    app.close()


@pytest.mark.slow
def test_a_signed_in_user_changes_preferences(
    shop_url: str, running_chromium: Chromium, connection: psycopg.Connection
) -> None:
    errors: list[str] = []
    with running_chromium.in_use() as browser:
        context = browser.new_context(locale="de")
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(f"{shop_url}/")
        offers = page.get_by_role("group", name="Offers and news").get_by_role("checkbox", name="In the application")
        offers.uncheck()
        page.get_by_text("Single kinds of message Offers and news").click()
        expect(page.get_by_role("group", name="A new offer")).to_be_visible()
        expect(page.get_by_text("Stock recounted")).to_have_count(0)
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_contain_text("Saved")
        context.close()
    assert one(connection, "select wanted from sereno.preferences where category = 'offers'") is False
    assert errors == [], "the policy of the page is not sufficient"


def test_the_page_names_exactly_the_properties_and_events_that_exist() -> None:
    script, text = all_files()["preferences.js"].content.decode(), PAGE.read_text()
    colours = set(re.findall(r"var\((--sereno-[\w-]+)", script))
    assert set(re.findall(r"--sereno-[\w-]+", text)) == {"--sereno-accent-ink"}
    assert colours - {"--sereno-accent-ink"} <= set(re.findall(r"--sereno-[\w-]+", INBOX.read_text()))
    assert set(re.findall(r"`(sereno-[\w-]+)`", text)) == set(re.findall(r'#tell\("([\w-]+)"', script))
    (names,) = re.findall(r"observedAttributes = \[(.*?)\]", script)
    for name in (*re.findall(r'"(\w+)"', names), *re.findall(r"^    get (\w+)\(", script, re.MULTILINE)):
        assert f"| `{name}` |" in text, name
