"""The server works under a path of another application, and behind a proxy that strips the path."""

from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from sereno import Sereno
from sereno.access.operations import create
from sereno.server import asgi
from tests.server.web.chromium import EMPTY
from tests.server.web.running_server import running
from tests.server.web.visit import Visits

PREFIX = "/tools/sereno"


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task
    def work() -> None: ...

    return work


def mounted(app: Sereno) -> Starlette:
    async def theirs(_: Request) -> PlainTextResponse:
        return PlainTextResponse("theirs")

    return Starlette(routes=[Mount(PREFIX, asgi(app)), Route("/tools/other", theirs)])


def behind_a_proxy(app: Sereno) -> Any:
    """A proxy that strips the path, so that the server does not know it."""
    inside = asgi(app)

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"].startswith(f"{PREFIX}/"), scope["path"]
        path = scope["path"].removeprefix(PREFIX)
        await inside({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    return proxy


@pytest.mark.slow
@pytest.mark.parametrize(
    "around", [pytest.param(mounted, marks=pytest.mark.slow), pytest.param(behind_a_proxy, marks=pytest.mark.slow)]
)
def test_pages_links_and_updates_work_under_a_path(app: Sereno, browse: Visits, work: Any, around: Any) -> None:
    """Every request outside of the path fails the test, as `Visits` says."""
    with running(around(app)) as root:
        url = f"{root}{PREFIX}"
        page = browse("", url=url)
        _links_stay_inside(page, url)
        page.evaluate("window.stays = true")
        job = work.enqueue()
        expect(page.locator("#now-newest tbody tr a").first).to_have_text(str(job.id))
        assert page.evaluate("window.stays"), "the page was reloaded"
        page.get_by_role("button", name="Sign out").click()
        expect(page).to_have_url(f"{url}/sign-in")
        page.goto(EMPTY)


def _links_stay_inside(page: Page, url: str) -> None:
    found = page.evaluate(
        "[...document.querySelectorAll('[href], [src], form')].map((each) => each.href || each.src || each.action)"
    )
    assert len(found) > 12
    assert [each for each in found if not each.startswith(f"{url}/")] == []


def test_a_path_without_its_slash_is_redirected(app: Sereno) -> None:
    secret = app.database.run(create("ann", "viewer", actor="test")).secret
    with running(mounted(app)) as root, httpx.Client(trust_env=False, timeout=30) as client:
        headers = {"Authorization": f"Bearer {secret}"}
        answer = client.get(f"{root}{PREFIX}", headers=headers)
        assert answer.is_redirect
        assert answer.headers["location"] == f"{root}{PREFIX}/"
        assert client.get(f"{root}{PREFIX}/", headers=headers).status_code == 200
        anonymous = client.get(f"{root}{PREFIX}/?range=6h")
        assert anonymous.headers["location"] == "./sign-in?next=%3Frange%3D6h"
        assert client.get(f"{root}/tools/other").text == "theirs"
