"""The actions of the jobs page."""

import re

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.facts import one, state
from tests.server.web.jobs.job_rows import create_jobs
from tests.server.web.visit import Visits


@pytest.fixture
def jobs(app: Sereno) -> list[int]:
    return create_jobs(app)


@pytest.mark.slow
def test_the_open_job_keeps_the_list_and_has_shortcuts(
    browse: Visits, jobs: list[int], connection: psycopg.Connection
) -> None:
    page = browse("jobs?q=tenant:ann")
    page.keyboard.press("j")
    page.keyboard.press("o")
    expect(page.locator(".drawer h2").first).to_contain_text(str(jobs[3]))
    expect(page.get_by_label("Search jobs")).to_have_value("tenant:ann")
    expect(page.locator("tr[data-id]")).to_have_count(2)
    # The page was replaced: its scripts have to be loaded before its shortcuts work.
    expect(page.locator("html[data-ready]")).to_have_count(1)
    page.keyboard.press("r")
    expect(page.locator("#ask")).to_be_hidden()
    page.keyboard.press("c")
    expect(page.locator("#ask h2")).to_have_text("Cancel this job?")
    page.locator("#ask .go").click()
    expect(page.locator("#job-state .pill").first).to_have_text("cancelled")
    assert state(connection, jobs[3]) == "cancelled"
    page.keyboard.press("r")
    page.locator("#ask .go").click()
    expect(page.locator("#job-state .pill").first).to_have_text("ready")
    page.keyboard.press("Escape")
    expect(page.locator(".drawer")).to_have_count(0)


@pytest.mark.slow
def test_masked_arguments_are_revealed(browse: Visits, jobs: list[int], connection: psycopg.Connection) -> None:
    page = browse(f"jobs?job={jobs[0]}", "operator")
    shown = page.locator("#job-arguments")
    expect(shown).not_to_contain_text("hunter2")
    page.locator("[data-reveal]").click()
    expect(shown).to_contain_text("hunter2")
    assert one(connection, "select count(*) from sereno.audit where action = 'job.reveal'") == 1
    stored = one(
        connection, "select count(*) from sereno.idempotency_keys where convert_from(body, 'utf8') like '%%hunter2%%'"
    )
    assert stored == 0, "the revealed value is stored for a repeated request"


@pytest.mark.slow
@pytest.mark.quick
def test_a_job_is_retried_with_other_arguments(browse: Visits, jobs: list[int], connection: psycopg.Connection) -> None:
    page = browse(f"jobs?job={jobs[0]}", "operator")
    page.locator("[data-edit]").click()
    field = page.locator("#edited")
    expect(field).to_have_value(re.compile("hunter2"))
    field.fill('{"account": 7, "to": "x"')
    page.locator("#edit-arguments .go").click()
    expect(page.locator("#toast .bad")).to_be_visible()
    field.fill('{"account": 7}')
    page.locator("#edit-arguments .go").click()
    expect(page.locator("#job-arguments")).to_contain_text('"account": 7')
    made = one(connection, "select id from sereno.jobs where args ->> 'account' = '7'")
    expect(page).to_have_url(re.compile(rf"job={made}$"))
    page.locator(f'dd a[href="./jobs?job={jobs[0]}"]').click()
    expect(page.locator("#job-state .pill").first).to_have_text("cancelled")


@pytest.mark.slow
def test_selected_jobs_are_changed_after_a_dry_run(
    browse: Visits, jobs: list[int], connection: psycopg.Connection
) -> None:
    page = browse("jobs")
    page.locator(f'tr[data-id="{jobs[0]}"] input').check()
    page.keyboard.press("Escape")
    expect(page.locator(".bulk output")).to_have_text("1 selected")
    page.locator('.bulk [data-do="POST jobs/retry"]').click()
    expect(page.locator("#ask-what")).to_contain_text("task: charge 1")
    assert state(connection, jobs[0]) == "cancelled"
    page.locator("#ask .go").click()
    expect(page.locator("#toast")).to_contain_text("Retry: 1")
    assert state(connection, jobs[0]) == "ready"
    assert state(connection, jobs[2]) == "cancelled"


@pytest.mark.slow
@pytest.mark.quick
def test_all_matching_jobs_are_changed_in_the_background(
    browse: Visits, jobs: list[int], connection: psycopg.Connection
) -> None:
    page = browse("jobs?q=state:cancelled")
    page.locator(".bulk [name=all]").check()
    page.locator(".bulk [name=rate]").fill("50")
    page.locator('.bulk [data-do="POST jobs/delete"]').click()
    expect(page.locator("#ask-what")).to_contain_text("2")
    page.locator("#ask .go").click()
    expect(page).to_have_url(re.compile(r"/operation\?id=\d+$"))
    expect(page.locator("h1")).to_have_text("0 of 2 jobs deleted.")
    assert one(connection, "select rate from sereno.bulk_operations") == 50
    expect(page.locator("html[data-ready]")).to_have_count(1)
    page.locator("#operation [data-do]").click()
    page.locator("#ask .go").click()
    expect(page.locator("#toast")).to_contain_text("Stop")
    assert one(connection, "select stop_requested_at is not null from sereno.bulk_operations")


@pytest.mark.slow
def test_a_long_list_of_jobs_comes_in_pages(app: Sereno, browse: Visits) -> None:
    @app.task
    def work(number: int) -> None: ...

    for number in range(60):
        work.enqueue(number)
    page = browse("jobs?q=task:work")
    expect(page.locator("h1")).to_have_text("More than 50 jobs match: the newest are shown.")
    page.locator("a[rel=next]").click()
    expect(page.locator("tr[data-id]")).to_have_count(10)
    page.locator(".pager a").click()
    expect(page.locator("tr[data-id]")).to_have_count(50)
