"""The pages of bulk operations show their progress, to users of their tenant only."""

import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.server.api.conftest import Ask
from tests.server.web.html_reader import Read
from tests.server.web.jobs.job_rows import create_jobs
from tests.server.web.visit import InspectPage, Visits


@pytest.fixture
def operation(app: Sereno, ask: Ask) -> int:
    """An operation of ann that no worker runs."""

    @app.task
    def work(number: int) -> None: ...

    for tenant in ("ann", "ann", "bob"):
        work.using(tenant=tenant).enqueue(1)
    body = {"q": "task:work", "tenant": "ann", "all": True, "in_background": True, "reason": "moved <b>"}
    answer = ask("admin").post("/jobs/cancel", json=body)
    assert answer.status_code == 202, answer.text
    number: int = answer.json()["id"]
    return number


@pytest.mark.slow
def test_the_progress_of_an_operation_is_shown(browse: Visits, inspect_page: InspectPage, operation: int) -> None:
    page = browse("operations")
    expect(page.locator("h1")).to_have_text("One bulk change is under way.")
    inspect_page(page, "operations")
    page.locator("tr a").click()
    expect(page.locator("h1")).to_have_text("0 of 2 jobs cancelled.")
    expect(page.locator("#operation")).to_contain_text("moved <b>")
    expect(page.locator("#operation")).to_contain_text("waits for a worker")
    inspect_page(page, "operation")


def test_a_tenant_sees_only_its_own_operations(read: Read, operation: int) -> None:
    assert "moved" in read("operation", "admin", "ann", id=operation).text
    assert f"operation?id={operation}" in read("operations", "admin", "ann").text
    assert read("operations", "admin", "ann", id=operation).headers["location"].endswith(f"operation?id={operation}")
    foreign = read("operation", "admin", "bob", id=operation)
    assert (foreign.status_code, "moved" in foreign.text) == (404, False)
    assert f"id={operation}" not in read("operations", "admin", "bob").text
    for wrong in ("x", "", "9" * 30, 999_999):
        assert read("operation", "admin", "ann", id=wrong).status_code == 404


@pytest.mark.slow
def test_the_button_of_a_confirmation_says_what_it_does_to_how_many(app: Sereno, browse: Visits) -> None:
    create_jobs(app)
    for language, several, one_job, no in (
        ("en", "Retry 2 jobs", "Retry 1 job", "Cancel"),
        ("es", "Reintentar 2 trabajos", "Reintentar 1 trabajo", "Cancelar"),
        ("pt", "Tentar de novo 2 trabalhos", "Tentar de novo 1 trabalho", "Cancelar"),
    ):
        page = browse("jobs?q=state:cancelled", language=language)
        boxes = page.locator("#jobs-table tbody input[type=checkbox]")
        for place, words in ((0, one_job), (1, several)):
            boxes.nth(place).check()
            page.locator('.bulk [data-do="POST jobs/retry"]').click()
            expect(page.locator("#ask [value=yes]")).to_have_text(words)
            expect(page.locator("#ask [value=no]")).to_have_text(no)
            page.locator("#ask [value=no]").click()
    # What cancels jobs cannot be dismissed with "Cancel".
    page = browse("jobs?q=state:ready")
    page.locator("#jobs-table tbody input[type=checkbox]").first.check()
    page.locator('.bulk [data-do="POST jobs/cancel"]').click()
    expect(page.locator("#ask [value=yes]")).to_have_text("Cancel 1 job")
    expect(page.locator("#ask [value=no]")).to_have_text("Go back")
