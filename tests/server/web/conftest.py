"""A real browser, and the pages that it opens.

`browse(path, role, tenant, dark=, width=, language=, zone=, status=)` signs a user in, opens the page and returns it;
`inspect_page(page, name, *looks)` runs axe on it (and stores a picture in build/screenshots, if the environment has
SERENO_TEST_SCREENSHOTS=1); `read(path, role, tenant)` reads the HTML without a browser. Without a Chromium the tests of
the browser are skipped. Everything here is sync: fill the database before the first `browse`, because nothing else in
the test can run a loop of its own after it (`app.database.run` needs none).
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.facts import TIMEOUT
from tests.server.api.conftest import (
    Ask,
    Served,
    ask,
    serve,
    served,
    shared_app,
    shared_ask,
    shared_connection,
    shared_served,
)
from tests.server.web import chromium, visit
from tests.server.web.chromium import Chromium
from tests.server.web.html_reader import Read, reader
from tests.server.web.visit import InspectPage, Visits

__all__ = [
    "ask", "browse", "inspect_page", "read", "running_chromium", "serve", "served", "shared_app", "shared_ask",
    "shared_connection", "shared_served", "site",
]  # fmt: skip

expect.set_options(timeout=TIMEOUT * 1000)


@pytest.fixture(scope="session")
def running_chromium() -> Iterator[Chromium]:
    """One browser for each process of a test run."""
    program = chromium.find()
    if program is None:
        pytest.skip(chromium.NOT_INSTALLED)
    running = Chromium(program)
    yield running
    running.close()


@pytest.fixture
def site(served: Served) -> Served:
    """The server whose pages are opened; `site.url` has no slash at its end."""
    return served


@pytest.fixture
def browse(app: Sereno, site: Served, running_chromium: Chromium) -> Iterator[Visits]:
    """Open a page as a user: `browse("jobs", "viewer", tenant="r42")`."""
    visits = Visits(app, site.url, running_chromium)
    yield visits
    visits.close()


@pytest.fixture
def inspect_page() -> InspectPage:
    return visit.inspect_page


@pytest.fixture
def read(ask: Ask, served: Served) -> Read:
    """Read a page without a browser."""
    return reader(ask, served)
