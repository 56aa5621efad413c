"""The recipe of live progress in a real browser, with the HTML, script and policy of the page."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from sereno.server.web.static_files import all_files
from tests.docs.pages import ROOT, only
from tests.docs.test_docs import TIMEOUT, environment
from tests.docs.test_inbox_blocks import ORIGIN, POLICY
from tests.server.web.chromium import Chromium
from tests.server.web.conftest import running_chromium
from tests.server.web.running_server import running
from tests.warm_process import WarmProcess

__all__ = ["running_chromium"]

PAGE = ROOT / "docs" / "recipes" / "live-progress.md"
HTML = '<!doctype html><html lang="es"><title>A report</title>{}<script type="module" src="/shop.js"></script></html>'


@pytest.fixture
def shop_url(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The application of the recipe with a signed-in user, and a worker."""
    monkeypatch.setenv("SERENO_DATABASE_URL", database_url)
    monkeypatch.setenv("SERENO_SECRET", "s" * 32)
    program = tmp_path / "shop.py"
    program.write_text(only(PAGE, "python", beginning="import asyncio"))
    spec = importlib.util.spec_from_file_location("shop_of_live_progress", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    urls: list[str] = []

    def text(kind: str, content: Callable[[], str]) -> Callable[[Request], Response]:
        def answer(_: Request) -> Response:
            name, _sign, policy = only(PAGE, "", beginning=POLICY).replace(ORIGIN, urls[0]).rstrip().partition(": ")
            return Response(content(), media_type=kind, headers={name: policy})

        return answer

    async def signed_in(scope: Any, receive: Any, send: Any) -> None:
        await module.api({**scope, "headers": [*scope["headers"], (b"x-user", b"ada")]}, receive, send)

    routes = [
        Route("/", text("text/html", lambda: HTML.format(only(PAGE, "html").replace(ORIGIN, urls[0])))),
        Route("/shop.js", text("text/javascript", lambda: only(PAGE, "js"))),
        Route("/favicon.ico", text("image/x-icon", lambda: "")),
        Mount("/", signed_in),
    ]
    command = [sys.executable, "-m", "sereno", "worker", "shop.py:app"]
    worker = WarmProcess(command, cwd=tmp_path, env=environment(database_url), stderr=subprocess.DEVNULL)
    with running(Starlette(routes=routes)) as url:
        urls.append(url)
        yield url
    worker.terminate()
    worker.wait(TIMEOUT)
    module.app.close()


@pytest.mark.slow
def test_the_report_appears_in_the_page(shop_url: str, running_chromium: Chromium) -> None:
    errors: list[str] = []
    with running_chromium.in_use() as browser:
        context = browser.new_context(locale="de")
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(f"{shop_url}/")
        expect(page.locator("#text")).to_have_text("A report about tea.")
        # In the language of the page, not of the browser.
        expect(page.get_by_role("status")).to_have_text("Terminado")
        expect(page.get_by_role("progressbar", name="Progreso")).to_have_attribute("aria-valuenow", "100")
        context.close()
    assert errors == [], "the policy of the page is not sufficient"


def test_the_page_names_exactly_the_properties_events_and_parts_that_exist() -> None:
    script, text = all_files()["job.js"].content.decode(), PAGE.read_text()
    for pattern, found in (
        (r"--sereno-[\w-]+", set(re.findall(r"var\((--sereno-[\w-]+)", script))),
        (r"`(sereno-job-\w+)`", {"sereno-job-state", "sereno-job-progress", "sereno-job-chunk", "sereno-job-end"}),
    ):
        assert set(re.findall(pattern, text)) == found
    assert set(re.findall(r'part: "(\w+)"', script)) == {"state", "note", "bar", "fill"}
