"""The dialog before an action says what the action affects, and an action without a reply ends."""

import re

import pytest
from playwright.sync_api import Route, expect

from sereno import Sereno
from tests.server.web.visit import Visits

TASKS = 9


@pytest.mark.slow
def test_the_parts_of_a_dry_run_add_up_to_its_total(browse: Visits, app: Sereno) -> None:
    for number in range(TASKS):
        task = app.task(name=f"export{number}")(_export)
        app.enqueue_many(task.job() for _ in range(1_200 if number == TASKS - 1 else number + 1))
    page = browse("jobs?q=state:ready")
    page.locator(".bulk [name=all]").check()
    page.locator('.bulk [data-do="POST jobs/cancel"]').click()
    what = page.locator("#ask-what")
    expect(what).to_contain_text("This affects 1,236.")
    tasks = what.locator("p", has_text=re.compile("^task: ")).inner_text()
    assert tasks == "task: export8 1,200, export7 8, export6 7, export5 6, export4 5, 10 others"


@pytest.mark.slow
def test_an_action_without_a_reply_ends_with_a_message(browse: Visits, app: Sereno) -> None:
    task = app.task(name="export")(_export)
    (job,) = app.enqueue_many([task.job()])
    page = browse(f"jobs?job={job.id}", "operator", own=True)
    page.route("**/api/v1/jobs/**", leave_open)
    page.clock.install()
    cancel = page.locator(".drawer").get_by_role("button", name="Cancel", exact=True)
    cancel.click()
    page.locator("#ask .go").click()
    expect(cancel).to_be_disabled()
    page.clock.fast_forward(31_000)
    expect(page.locator("#toast .bad")).to_have_text(re.compile(r"did not answer within 30 s"))
    expect(cancel).to_be_enabled()


def leave_open(route: Route) -> None:
    """Send no reply."""


def _export() -> None: ...
