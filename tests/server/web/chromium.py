"""The system's Chromium, driven by Playwright: one process for all tests of a worker, on loopback only."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
NOT_INSTALLED = "no Chromium: apt-get install chromium, or name one in SERENO_TEST_CHROMIUM"
# Loopback only, and without a proxy.
LOOPBACK_ONLY = ["--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"]


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
        self._loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)

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
