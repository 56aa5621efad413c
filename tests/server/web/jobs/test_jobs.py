"""The jobs page: its search is in the query, and it shows details and actions of one job."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import Page, expect

from sereno import Backoff, Sereno
from sereno.database.driver import drive
from sereno.jobs import operations
from sereno.jobs.filters import JobFilter
from tests.facts import one, state
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served
from tests.server.web.visit import Visits

InspectPage = Callable[[Page, str], None]
Get = Callable[..., httpx.Response]
HOSTILE = '<img src=x onerror="alert(1)">\'{{ 7*7 }}'


@pytest.fixture
def jobs(app: Sereno) -> list[int]:
    """Jobs of two tenants and without one; two are cancelled."""

    @app.task(retry=Backoff(0))
    def charge(account: int, api_token: str = "", to: str = "") -> None: ...

    @app.task(queue="reports")
    def close_day(day: str) -> None: ...

    made = [
        charge.using(tenant="ann", tags=["eu", "a b"], trace="t-1").enqueue(1, "hunter2", "ann@shop.example").id,
        charge.using(tenant="bob").enqueue(2, "canary-of-bob").id,
        close_day.using(tags=[HOSTILE], unique_key=HOSTILE).enqueue(HOSTILE).id,
        charge.using(tenant="ann").enqueue(4).id,
    ]
    drive(operations.cancel(JobFilter(ids=[made[0], made[2]]), reason=HOSTILE, actor="test"), app.database.run)
    return made


@pytest.fixture
def get(ask: Ask, served: Served) -> Get:
    """Get a page without a browser."""

    def page(path: str, role: str = "viewer", tenant: str | None = None, **params: Any) -> httpx.Response:
        headers = {"Authorization": ask(role, tenant).headers["Authorization"]}
        options: dict[str, Any] = {"verify": NO_CERTIFICATES, "trust_env": False, "timeout": 30}
        return httpx.get(f"{served.url}/{path}", params=params, headers=headers, **options)

    return page


def _ids(page: str) -> list[int]:
    return [int(found) for found in re.findall(r'<tr data-id="(\d+)"', page)]


def test_the_search_of_jobs_is_in_the_query(get: Get, jobs: list[int]) -> None:
    assert _ids(get("jobs").text) == jobs[::-1]
    assert _ids(get("jobs", q="state:cancelled").text) == [jobs[2], jobs[0]]
    assert _ids(get("jobs", q="tenant:ann -state:cancelled").text) == [jobs[3]]
    assert _ids(get("jobs", tenant="bob").text) == [jobs[1]]
    assert _ids(get("jobs", before=str(jobs[1])).text) == [jobs[0]]
    assert "No job matches." in get("jobs", q="task:unknown").text
    assert 'value="tenant:ann -state:cancelled"' in get("jobs", q="tenant:ann -state:cancelled").text


def test_a_list_without_jobs(browse: Visits, inspect_page: InspectPage) -> None:
    page = browse("jobs")
    expect(page.locator("h1")).to_have_text("No dead jobs.")
    expect(page.locator(".nothing")).to_contain_text("No job yet")
    inspect_page(page, "jobs-empty")


@pytest.mark.parametrize("q", ["state:dead stat:x", 'error:"open', "age:1h", "x" * 2500, "attempts:>a", "\x00"])
def test_an_invalid_search_is_explained(get: Get, jobs: list[int], q: str) -> None:
    answer = get("jobs", q=q)
    assert answer.status_code == 200
    assert "of the search" in answer.text
    assert "<mark>" in answer.text
    assert _ids(answer.text) == []


@pytest.mark.parametrize(
    "params", [{"job": "x"}, {"job": "9" * 30}, {"job": "-1"}, {"before": "x"}, {"before": "9" * 25}, {"job": "²"}]
)
def test_invalid_ids_are_ignored(get: Get, jobs: list[int], params: dict[str, str]) -> None:
    assert get("jobs", **params).status_code == 200


def test_a_tenant_sees_no_jobs_of_another(get: Get, jobs: list[int]) -> None:
    of_ann = get("jobs", tenant="ann", role="admin")
    assert _ids(of_ann.text) == [jobs[3], jobs[0]]
    assert "bob" not in of_ann.text
    assert "reports" not in of_ann.text, "a queue that only other tenants use"
    for number in (jobs[1], jobs[2], 999_999):
        answer = get("jobs", role="admin", tenant="ann", job=number)
        assert f"There is no job {number}, or you have no access to it." in answer.text
        assert "canary-of-bob" not in answer.text
    assert "close_day" not in get("jobs", role="admin", tenant="ann", job=jobs[0]).text


def test_secrets_are_masked(get: Get, jobs: list[int]) -> None:
    answer = get("jobs", role="admin", job=jobs[0])
    assert "api_token" in answer.text
    assert "hunter2" not in answer.text
    assert "ann@shop.example" not in answer.text


def test_a_viewer_is_offered_no_action(get: Get, jobs: list[int]) -> None:
    page = get("jobs", job=jobs[0]).text
    assert "data-do" not in page
    assert "data-reveal" not in page
    assert "data-edit" not in page
    assert 'data-do="POST jobs/delete"' not in get("jobs", role="operator", job=jobs[0]).text


def test_hostile_names_are_shown_as_text(browse: Visits, jobs: list[int]) -> None:
    page = browse(f"jobs?job={jobs[2]}")
    expect(page.locator("#job-arguments")).to_contain_text("<img src=x")
    expect(page.locator(".why")).to_contain_text(HOSTILE)
    expect(page.locator("main img")).to_have_count(0)
    page.locator(".drawer .chip", has_text="<img").click()
    expect(page.locator("tr[data-id]")).to_have_count(1)
    expect(page.locator(".terms .chip")).to_contain_text("<img")


@pytest.mark.parametrize(("dark", "width"), [(False, 1380), (True, 1380), (False, 375)])
def test_the_jobs_page_is_accessible(
    browse: Visits, inspect_page: InspectPage, jobs: list[int], dark: bool, width: int
) -> None:
    page = browse("jobs?q=-tag:canary", dark=dark, width=width)
    expect(page.locator("tr[data-id]")).to_have_count(4)
    inspect_page(page, "jobs")
    page.locator("tr[data-id] a").last.click()
    expect(page.locator(".drawer")).to_be_visible()
    inspect_page(page, "job")


def test_a_facet_is_a_term_of_the_search(browse: Visits, jobs: list[int]) -> None:
    page = browse("jobs")
    search = page.get_by_label("Search jobs")
    page.locator(".facets .value", has_text="cancelled").click()
    expect(search).to_have_value("state:cancelled")
    expect(page.locator("tr[data-id]")).to_have_count(2)
    page.get_by_label("exclude reports").click()
    expect(search).to_have_value("state:cancelled -queue:reports")
    expect(page.locator("tr[data-id]")).to_have_count(1)
    page.locator(".facets .value", has_text="cancelled").click()
    expect(search).to_have_value("-queue:reports")
    page.locator(".terms .chip").click()
    expect(search).to_have_value("")


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
