"""A browser for tests of the pages; every error on a page is recorded."""

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from uuid import uuid4

import httpx
from playwright.sync_api import ConsoleMessage, Dialog, Page, Request, Response

from sereno import Sereno
from sereno.access.operations import create
from sereno.server.shared.authenticator import COOKIE
from tests.plain_http import NO_CERTIFICATES
from tests.server.web.chromium import Chromium

SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
# No check needs them, and each takes a quarter of a second of CPU.
TAKE_SCREENSHOTS = bool(os.environ.get("SERENO_TEST_SCREENSHOTS"))
TALL = 900
# The failure that a browser reports when it leaves a page with pending requests.
LEFT = "net::ERR_ABORTED"


InspectPage = Callable[..., None]
# Ways to look at a page: dark or light, and the width of the window.
LIGHT_DESKTOP, DARK_DESKTOP, LIGHT_PHONE, DARK_PHONE = (False, 1380), (True, 1380), (False, 375), (True, 375)


class Visits:
    """`browse("jobs?q=x", role="viewer", tenant="r42", dark=True, width=375, language="es")`: a page, signed in.

    Every visitor in one test has a token, cookies and a window of their own. Every error on their pages fails the test
    at its end, unless `forgive` names it. The pages are used again by other tests: a test that changes more than
    documents, cookies and storage (the clock of the page, for example) asks for a new one with `own=True`.
    """

    def __init__(self, app: Sereno, url: str, chromium: Chromium) -> None:
        self.problems: list[str] = []
        # The names of the visitors' tokens, in their order.
        self.names: list[str] = []
        self._app = app
        self._url = url
        self._chromium = chromium
        self._open = ExitStack()
        self._is_in_use = False
        self._forgiven: list[re.Pattern[str]] = []

    def __call__(
        self,
        path: str = "",
        role: str | None = "admin",
        tenant: str | None = None,
        *,
        dark: bool = False,
        width: int = 1380,
        language: str = "en",
        zone: str = "UTC",
        status: int = 200,
        url: str | None = None,
        own: bool = False,
    ) -> Page:
        """Return the page. `role=None`: no token; `status`: the expected one; `url`: another server than the test's."""
        url = url or self._url
        # Until the first page is opened, the test can run event loops.
        if not self._is_in_use:
            self._open.enter_context(self._chromium.in_use())
            self._is_in_use = True
        options = {"locale": language, "timezone_id": zone}
        page = self._chromium.open_page(own=own, dark=dark, width=width, height=TALL, **options)
        if own:
            self._open.callback(page.context.close)
        else:
            self._open.callback(self._chromium.return_page, page, **options)
        if role is not None:
            signed_in = self.cookie(role, tenant, url)
            page.context.add_cookies([{"name": COOKIE, "value": signed_in, "domain": "127.0.0.1", "path": "/"}])
        self._watch(page, url)
        if status >= 400:
            self.forgive(rf"the server responded with a status of {status} ")
        answer = page.goto(f"{url}/{path.lstrip('/')}")
        assert answer is not None
        assert answer.status == status, (answer.status, page.inner_text("body"))
        return page

    def cookie(self, role: str, tenant: str | None = None, url: str | None = None) -> str:
        """Sign in with a new token and return the cookie."""
        self.names.append(f"{role} {uuid4().hex[:8]}")
        secret = self._app.database.run(create(self.names[-1], role, tenant=tenant, actor="test")).secret
        address = f"{url or self._url}/sign-in"
        answer = httpx.post(address, data={"token": secret}, timeout=30, verify=NO_CERTIFICATES, trust_env=False)
        assert answer.status_code == 303, answer.text
        return answer.cookies[COOKIE]

    def forgive(self, pattern: str) -> None:
        """Expect this error in this test."""
        self._forgiven.append(re.compile(pattern))

    def close(self) -> None:
        """Leave all pages, the newest first."""
        self._open.close()
        wrong = [each for each in self.problems if not any(known.search(each) for known in self._forgiven)]
        assert not wrong, "\n".join(wrong)

    def _watch(self, page: Page, url: str) -> None:
        wrong = self.problems.append

        def requested(request: Request) -> None:
            if not request.url.startswith((f"{url}/", "data:", "blob:")):
                wrong(f"request to another host: {request.url}")

        def failed(request: Request) -> None:
            if request.failure != LEFT:
                wrong(f"request failed: {request.url} {request.failure}")

        def logged(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                wrong(f"console: {message.text} at {message.location}")

        def asked_to_confirm(dialog: Dialog) -> None:
            wrong(f"dialog: {dialog.message}")
            dialog.dismiss()

        listeners: dict[Any, Callable[[Any], None]] = {
            "request": requested,
            "requestfailed": failed,
            "console": logged,
            "pageerror": lambda error: wrong(f"script: {error}"),
            "crash": lambda _: wrong("the page crashed"),
            "dialog": asked_to_confirm,
        }
        for event, listener in listeners.items():
            page.on(event, listener)
            self._open.callback(page.remove_listener, event, listener)


def goto(page: Page, path: str) -> Response:
    """Go to another page of the same server, as a link does."""
    answer = page.goto(urljoin(page.url, path))
    assert answer is not None
    return answer


@cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


def inspect_page(page: Page, name: str, *looks: tuple[bool, int], contrast: bool = True) -> None:
    """Assert that axe finds no accessibility problem and that the page fits the window.

    `looks`: LIGHT_DESKTOP, DARK_PHONE …, one after the other on the same page; without any: as the page is. The
    contrast of colours is checked once in each theme: it takes axe four times as long as all other rules.
    `contrast=False`: not at all, for a page of which only the language is new. With SERENO_TEST_SCREENSHOTS=1 in the
    environment, a picture of each is stored.
    """
    page.wait_for_load_state()
    # The first light one and the last dark one, which are of different widths where there are several.
    with_contrast = [*[look for look in looks if not look[0]][:1], *[look for look in looks if look[0]][-1:]]
    for dark, width in looks:
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.set_viewport_size({"width": width, "height": TALL})
        _inspect(page, name, contrast=contrast and (dark, width) in with_contrast)
    if not looks:
        _inspect(page, name, contrast=contrast)


def _inspect(page: Page, name: str, *, contrast: bool) -> None:
    size = page.viewport_size
    assert size is not None
    shade = "dark" if page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark" else "light"
    if TAKE_SCREENSHOTS:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}-{shade}-{size['width']}.png", full_page=True)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= size["width"], f"{name} is {wide} wide in a window of {size['width']}"
    violations = accessibility_problems(page, contrast=contrast)
    assert not violations, f"{name}, {shade}, {size['width']} wide:\n" + "\n".join(violations)


def accessibility_problems(page: Page, *, contrast: bool = True) -> list[str]:
    """Return what axe finds on the page as it is. `contrast`: also texts with too little contrast."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe())
    # Only the violations are transferred: the other results would take half of the time. A frame is a document of
    # its own: a message as its recipient sees it.
    run = """(contrast) => axe.run({resultTypes: ['violations'], iframes: false,
        rules: {'color-contrast': {enabled: contrast}}}).then((each) => each.violations)"""
    found = page.evaluate(run, contrast)
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]} {node['failureSummary'][:400]}"
        for each in found
        for node in each["nodes"]
    ]
