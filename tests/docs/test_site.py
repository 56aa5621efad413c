"""The documentation site and the page of the distribution: complete, without warnings, without a network."""

import functools
import http.server
import importlib
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

import sereno
from tests.docs.pages import ROOT
from tests.facts import TIMEOUT
from tests.server.web import chromium
from tests.server.web.chromium import Chromium

PYTHON_PAGES = ROOT / "docs" / "reference" / "python"
# Names of the package that are no objects of their own.
PLAIN = {"__version__"}
RESOURCE = re.compile(r"""<(?:script|img|iframe|source)[^>]*\bsrc="([^"]+)"|<link[^>]*\bhref="([^"]+)"[^>]*>""")


def described() -> list[str]:
    """Return the names that the pages about Python describe."""
    return [
        name
        for page in PYTHON_PAGES.glob("*.md")
        for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
    ]


def test_the_python_reference_describes_every_public_name() -> None:
    names = described()
    assert sorted(names) == sorted(set(names))
    assert [name for name in sereno.__all__ if name not in PLAIN and f"sereno.{name}" not in names] == []


@pytest.mark.slow
def test_every_described_name_has_a_docstring(subtests: pytest.Subtests) -> None:
    for name in described():
        if ".django." in name:
            continue  # Importing it needs a configured project.
        with subtests.test(name=name):
            assert (_object(name).__doc__ or "").strip()


def _object(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    found: object = getattr(importlib.import_module(module), attribute)
    return found


@pytest.mark.slow
def test_the_site_is_built_without_warnings_and_works_without_a_network() -> None:
    """One test, because the build takes most of the time."""
    site = build()
    pages = sorted((site / sereno.__version__).rglob("*.html"))
    assert len(pages) > 100
    foreign = {each for page in pages for each in loaded(page) if "//" in each}
    assert foreign == set()
    assert "sereno.Backoff" in (site / sereno.__version__ / "reference" / "python" / "tasks.html").read_text()
    program = chromium.find()
    if program is None:
        pytest.skip(chromium.NOT_INSTALLED)
    browser = Chromium(program)
    try:
        with browser.in_use(), served(site) as address:
            visit(browser, address)
    finally:
        browser.close()


def build() -> Path:
    """Build the site as `make docs` does, and return its directory."""
    ran = subprocess.run(
        [sys.executable, "-m", "tools.build_site"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return ROOT / "build" / "site"


def loaded(page: Path) -> list[str]:
    """Return what the page loads: scripts, pictures, styles."""
    return [script or style for script, style in RESOURCE.findall(page.read_text())]


def visit(browser: Chromium, address: str) -> None:
    """Open the newest version, see its number, change to dark, and find a word."""
    page = browser.open_page(own=True, dark=False, width=1440, height=900)
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(address)
    page.wait_for_url(f"{address}/{sereno.__version__}/")
    expect(page.locator(".md-version")).to_contain_text(sereno.__version__)
    body = page.locator("body")
    expect(body).to_have_attribute("data-md-color-scheme", "default")
    for _ in range(2):
        page.locator("label[for^=__palette]:visible").click()
    expect(body).to_have_attribute("data-md-color-scheme", "slate")
    page.keyboard.press("/")
    page.keyboard.type("heartbeat")
    expect(page.get_by_text(re.compile(r"\d+ results"))).to_be_visible(timeout=TIMEOUT * 1000)
    assert [url for url in requested if not url.startswith((address, "data:", "blob:"))] == []
    page.context.close()


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve the directory on loopback."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Keep the output of the tests free of requests."""


@pytest.mark.slow
def test_the_page_of_the_distribution_is_accepted_and_has_no_dead_links(tmp_path: Path) -> None:
    """`twine check` renders the description of the wheel as the package index does."""
    for command in (["hatchling", "build", "-d", str(tmp_path)], ["twine", "check", "--strict"]):
        files = [str(path) for path in tmp_path.iterdir()] if command[0] == "twine" else []
        ran = subprocess.run(
            [sys.executable, "-m", *command, *files],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        (metadata,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        text = content.read(metadata).decode()
    assert "# sereno\n" in text
    assert re.findall(r"\]\((?!https?:)[^)]*\)|<!--", text) == []
