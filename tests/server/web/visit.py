"""A browser for tests of the pages; every error on a page is recorded."""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it ships no types
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

from sereno import Sereno
from sereno.access.operations import create
from sereno.server.shared.authenticator import COOKIE
from tests.plain_http import NO_CERTIFICATES
from tests.server.web.chromium import Chromium

SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
TALL = 900
# The failure that a browser reports when it leaves a page with pending requests.
LEFT = "net::ERR_ABORTED"


class Visits:
    """`browse("jobs?q=x", role="viewer", tenant="r42", dark=True, width=375, language="es")`: a page, signed in.

    Every visitor in one test has a token, cookies and a window of their own. Every error on their pages fails the test
    at its end, unless `forgive` names it.
    """

    def __init__(self, app: Sereno, url: str, chromium: Chromium) -> None:
        self.problems: list[str] = []
        # The names of the visitors' tokens, in their order.
        self.names: list[str] = []
        self._app = app
        self._url = url
        self._chromium = chromium
        self._open = ExitStack()
        self._contexts: list[BrowserContext] = []
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
        **options: Any,
    ) -> Page:
        """Return the page. `role=None`: no token; `status`: the expected one; `url`: another server than the test's."""
        url = url or self._url
        context = self._browser().new_context(
            base_url=f"{url}/",
            locale=language,
            timezone_id=zone,
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": TALL},
            **options,
        )
        self._contexts.append(context)
        if role is not None:
            signed_in = self.cookie(role, tenant, url)
            context.add_cookies([{"name": COOKIE, "value": signed_in, "domain": "127.0.0.1", "path": "/"}])
        page = context.new_page()
        self._watch(page, url)
        if status >= 400:
            self.forgive(rf"the server responded with a status of {status} ")
        answer = page.goto(path.lstrip("/") or "./")
        assert answer is not None
        assert answer.status == status, (answer.status, page.inner_text("body"))
        return page

    def cookie(self, role: str, tenant: str | None = None, url: str | None = None) -> str:
        """Sign in with a new token and return the cookie."""
        self.names.append(f"{role} {len(self.names)}")
        secret = self._app.database.run(create(self.names[-1], role, tenant=tenant, actor="test")).secret
        address = f"{url or self._url}/sign-in"
        answer = httpx.post(address, data={"token": secret}, timeout=30, verify=NO_CERTIFICATES, trust_env=False)
        assert answer.status_code == 303, answer.text
        return answer.cookies[COOKIE]

    def forgive(self, pattern: str) -> None:
        """Expect this error in this test."""
        self._forgiven.append(re.compile(pattern))

    def close(self) -> None:
        with self._open:
            for context in self._contexts:
                context.close()
        wrong = [each for each in self.problems if not any(known.search(each) for known in self._forgiven)]
        assert not wrong, "\n".join(wrong)

    def _browser(self) -> Browser:
        """Return the browser; until the first page is opened, the test can run event loops."""
        if not self._contexts:
            self._opened = self._open.enter_context(self._chromium.in_use())
        return self._opened

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

        page.on("request", requested)
        page.on("requestfailed", failed)
        page.on("console", logged)
        page.on("pageerror", lambda error: wrong(f"script: {error}"))
        page.on("crash", lambda _: wrong("the page crashed"))
        page.on("dialog", asked_to_confirm)


def inspect_page(page: Page, name: str) -> None:
    """Assert that axe finds no accessibility problem and that the page fits the window; store a picture."""
    page.wait_for_load_state()
    size = page.viewport_size
    assert size is not None
    shade = "dark" if page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark" else "light"
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}-{shade}-{size['width']}.png", full_page=True)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= size["width"], f"{name} is {wide} wide in a window of {size['width']}"
    found = Axe().run(page).response["violations"]
    violations = [
        f"{each['id']}: {each['help']}: {node['html'][:200]} {node['failureSummary'][:400]}"
        for each in found
        for node in each["nodes"]
    ]
    assert not violations, "\n".join(violations)
