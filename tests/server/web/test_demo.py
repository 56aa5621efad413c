"""The demo from end to end: five systems run, a killed worker is replaced, and every page has content for pictures.

`make pictures` stores the pictures for the documentation.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from playwright.sync_api import Browser, Page

from sereno.database.embedded import EmbeddedPostgres
from tests.cli.conftest import process_environment
from tests.facts import one, until
from tests.plain_http import NO_CERTIFICATES
from tests.server.web.chromium import Chromium
from tests.server.web.visit import SCREENSHOTS

# Pages with content; the others are empty until a user does something.
PAGES = (
    "",
    "jobs",
    "schedules",
    "queues",
    "tenants",
    "errors",
    "logs",
    "notifications",
    "deliveries",
    "recipients",
    "channels",
    "templates",
    "preferences",
    "traces",
    "procedures",
    "archive",
    "operations",
    "system",
)
# In the demo, rules exist from the start, but an alert opens only after a while.
RULES = "alerts"
SYSTEMS = ("tenders", "separate_worker", "reminders", "reconciliation", "triggers")
NOTHING = 'class="nothing"'
# The directory of the pictures for the documentation; by default that of all pictures of tests.
PICTURES = Path(os.environ.get("SERENO_TEST_PICTURES", SCREENSHOTS / "demo"))
WIDE, TALL, TALLER = 1280, 820, 1180
# The worker of tenders, as named at the start, and each successor.
WORKERS = re.compile(
    r"kill -9 (\d+) +kills the worker of tenders|"
    r"The worker of tenders was killed; a new one is running \(pid (\d+)\)"
)


class Demo:
    """`sereno demo` in a process of its own, and its output so far."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory / "demo"
        self._output_file = directory / "output"
        where = ["--port", "0", "--directory", str(self.directory)]
        with self._output_file.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sereno", "demo", *where, *options],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=process_environment(),
                cwd=directory,
            )

    @property
    def output(self) -> str:
        return self._output_file.read_text()

    @property
    def workers(self) -> list[int]:
        return [int(first or later) for first, later in WORKERS.findall(self.output)]

    def found(self, pattern: str) -> re.Match[str]:
        """Return the first match in its output; wait for it as long as the process lives."""

        def is_found() -> bool:
            found = re.search(pattern, self.output)
            assert found or self.process.poll() is None, self.output
            return found is not None

        until(is_found, timeout=90)
        found = re.search(pattern, self.output)
        assert found
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    # The embedded server of root runs as another user.
    tmp_path.chmod(0o755)
    running = Demo(tmp_path)
    yield running
    running.end()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_five_systems_run_and_a_killed_worker_is_replaced(demo: Demo, running_chromium: Chromium) -> None:
    url = demo.found(r"The dashboard: (http://127\.0\.0\.1:\d+/)")[1]
    with httpx.Client(base_url=url, verify=NO_CERTIFICATES, trust_env=False, timeout=30) as visitor:

        def is_full(page: str) -> bool:
            answer = visitor.get(page)
            assert answer.status_code == 200, (page, answer.text)
            return NOTHING not in answer.text

        for page in PAGES:
            until(lambda: is_full(page), timeout=60)  # noqa: B023
        until(lambda: "No rule yet" not in visitor.get(RULES).text, timeout=60)
        # The pages that the demo names exist.
        shown = re.findall(rf"^    {re.escape(url)}(\S*)$", demo.output, re.MULTILINE)
        assert len(shown) > len(SYSTEMS)
        for page in shown:
            assert visitor.get(page).status_code == 200, page
    insert_past_minutes(demo)
    with running_chromium.in_use() as browser:
        take_pictures(browser, url)
    # The suggested command works: a new worker replaces the killed one.
    named = until(lambda: kill_worker(demo), timeout=90)
    until(lambda: len(demo.workers) > len(named), timeout=90)
    assert demo.workers[len(named)] != named[-1]
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(60) == 0, demo.output
    for name in SYSTEMS:
        done = re.search(rf"^{name}: (\d+) done, ", demo.output, re.MULTILINE)
        assert done, demo.output
        assert int(done[1]) > 0, demo.output
    assert re.search(r"^tenders: .* [1-9]\d* messages sent", demo.output, re.MULTILINE), demo.output
    # Named at the start and at the end.
    assert demo.output.count(f"  export SERENO_DIRECTORY={demo.directory}") == 2


def kill_worker(demo: Demo) -> list[int]:
    """Kill the last worker named so far and return all of them; return none while its successor is not named yet."""
    assert demo.process.poll() is None, demo.output
    named = demo.workers
    try:
        os.kill(named[-1], signal.SIGKILL)
    except ProcessLookupError:
        return []
    return named


@pytest.mark.slow
def test_the_demo_ends_after_the_given_seconds(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    demo = Demo(tmp_path, "--seconds", "1")
    try:
        assert demo.process.wait(100) == 0, demo.output
    finally:
        demo.end()
    assert re.search(r"^triggers: \d+ done, ", demo.output, re.MULTILINE), demo.output


# Statistics of the hour before: more and less than now.
PAST = """
insert into sereno.minutes (minute, queue, task, succeeded, retried, dead, waits, runs, run_seconds)
select now.minute - make_interval(mins => n), queue, task, round(succeeded * share), round(retried * share),
       case when n % 9 = 0 then dead else 0 end, waits, runs, run_seconds
from sereno.minutes as now cross join generate_series(1, 58) as n
cross join lateral (select 0.8 + 0.2 * sin(n / 5.0) + 0.1 * sin(n)) as wave (share)
where now.minute = (select minute from sereno.minutes group by 1 order by sum(succeeded) desc limit 1)
on conflict do nothing
"""


def insert_past_minutes(demo: Demo) -> None:
    """Insert statistics of the hour before, because pictures of the first minute would show little."""
    with EmbeddedPostgres(demo.directory) as server, psycopg.connect(server.url, autocommit=True) as connection:
        until(lambda: one(connection, "select exists (select from sereno.minutes)"), timeout=90)
        connection.execute(PAST.encode())


def take_pictures(browser: Browser, url: str) -> None:
    """Take the pictures of the documentation."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for shade in ("light", "dark"):
        context = browser.new_context(
            base_url=url,
            locale="en",
            timezone_id="UTC",
            color_scheme="dark" if shade == "dark" else "light",
            viewport={"width": WIDE, "height": TALLER},
        )
        page = context.new_page()
        take(page, "", PICTURES / f"now-{shade}.png")
        if shade == "light":
            page.set_viewport_size({"width": WIDE, "height": TALL})
            for name in ("jobs", "schedules", "notifications"):
                take(page, name, PICTURES / f"{name}.png")
        context.close()


def take(page: Page, path: str, file: Path) -> None:
    page.goto(path or "./")
    page.wait_for_selector("html[data-ready]")
    page.screenshot(path=file)
    assert file.stat().st_size > 20_000, "the picture is empty"
