"""The system's Chromium, driven by Playwright: one process for all tests of a worker, on loopback only."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

# The headless shell first: the same engine without a desktop interface. The slow tests take a tenth less time with it.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
NOT_INSTALLED = "no Chromium: apt-get install chromium-headless-shell, or name one in SERENO_TEST_CHROMIUM"
# Loopback only, and without a proxy.
LOOPBACK_ONLY = ["--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"]
EMPTY = "about:blank"
HAS_OWN_CLOCK = "setTimeout.toString().includes('[native code]')"
MOST_IDLE = 4  # pages that wait for the next test; each has a process of about 100 MB


def find() -> str | None:
    """Return the path of the program, if it is installed."""
    named = os.environ.get("SERENO_TEST_CHROMIUM")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


class Chromium:
    """A browser that runs until the tests end.

    Playwright's event loop never returns, so asyncio regards it as running. It is unset while no browser is in use, so
    that other tests of the same process can run loops of their own.
    """

    def __init__(self, program: str) -> None:
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(
            executable_path=program,
            args=[*LOOPBACK_ONLY, *(["--no-sandbox"] if os.getuid() == 0 else [])],
            env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        )
        self._idle: list[tuple[dict[str, Any], Page]] = []
        self._loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)

    def open_page(self, *, own: bool = False, dark: bool, width: int, height: int, **options: Any) -> Page:
        """Return an empty page of a context with these options and without cookies.

        A page of an earlier test is used again if there is one: the process of a new one costs about a second of CPU.
        `own`: always a new one, which the caller closes with its context.
        """
        page = None if own else next((page for known, page in self._idle if known == options), None)
        if page is None:
            page = self._browser.new_context(**options).new_page()
        else:
            self._idle.remove((options, page))
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.set_viewport_size({"width": width, "height": height})
        return page

    def return_page(self, page: Page, **options: Any) -> None:
        """Leave the page of a test, delete what it stored, and keep it for the next test with these options."""
        if page.is_closed():
            page.context.close()
            return
        url = page.url
        page.unroute_all()
        page.goto(EMPTY)
        # A fake clock stays for good: the requests of later tests would never time out, or at once.
        assert page.evaluate(HAS_OWN_CLOCK), "this test changed the clock of a page: open it with own=True"
        for other in page.context.pages:
            if other is not page:
                other.close()
        page.context.clear_cookies()
        if url != EMPTY:
            session = page.context.new_cdp_session(page)
            session.send("Storage.clearDataForOrigin", {"origin": url, "storageTypes": "all"})
            session.detach()
        self._idle.append((options, page))
        if len(self._idle) > MOST_IDLE:
            self._idle.pop(0)[1].context.close()

    @contextmanager
    def in_use(self) -> Iterator[Browser]:
        """Yield the browser; until the block ends, no other event loop can run in this thread."""
        asyncio._set_running_loop(self._loop)
        try:
            yield self._browser
        finally:
            asyncio._set_running_loop(None)

    def close(self) -> None:
        asyncio._set_running_loop(self._loop)
        self._browser.close()
        self._playwright.stop()
        asyncio._set_running_loop(None)
