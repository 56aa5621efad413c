"""The list of jobs: its search is in the query, and it shows details of one job. All tests share their rows."""

import re

import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.server.web.html_reader import Read
from tests.server.web.jobs.job_rows import HOSTILE, create_jobs
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.visit import DARK_DESKTOP, LIGHT_DESKTOP, LIGHT_PHONE, InspectPage, Visits

__all__ = ["app", "ask", "connection", "database_url", "served"]


@pytest.fixture(scope="module")
def jobs(app: Sereno) -> list[int]:
    return create_jobs(app)


def _ids(page: str) -> list[int]:
    return [int(found) for found in re.findall(r'<tr data-id="(\d+)"', page)]


def test_the_search_of_jobs_is_in_the_query(read: Read, jobs: list[int]) -> None:
    assert _ids(read("jobs").text) == jobs[::-1]
    assert _ids(read("jobs", q="state:cancelled").text) == [jobs[2], jobs[0]]
    assert _ids(read("jobs", q="tenant:ann -state:cancelled").text) == [jobs[3]]
    assert _ids(read("jobs", whose="bob").text) == [jobs[1]]
    assert _ids(read("jobs", before=str(jobs[1])).text) == [jobs[0]]
    assert "No job matches." in read("jobs", q="task:unknown").text
    assert 'value="tenant:ann -state:cancelled"' in read("jobs", q="tenant:ann -state:cancelled").text


def test_an_invalid_search_is_explained(read: Read, jobs: list[int], subtests: pytest.Subtests) -> None:
    for q in ("state:dead stat:x", 'error:"open', "age:1h", "x" * 2500, "attempts:>a", "\x00"):
        with subtests.test(q=q[:20]):
            answer = read("jobs", q=q)
            assert answer.status_code == 200
            assert "of the search" in answer.text
            assert "<mark>" in answer.text
            assert _ids(answer.text) == []


@pytest.mark.slow
def test_invalid_ids_are_ignored(read: Read, jobs: list[int], subtests: pytest.Subtests) -> None:
    for name, value in (
        ("job", "x"),
        ("job", "9" * 30),
        ("job", "-1"),
        ("before", "x"),
        ("before", "9" * 25),
        ("job", "²"),
    ):
        with subtests.test(name, value=value):
            assert read("jobs", **{name: value}).status_code == 200


def test_a_tenant_sees_no_jobs_of_another(read: Read, jobs: list[int]) -> None:
    of_ann = read("jobs", role="admin", whose="ann")
    assert _ids(of_ann.text) == [jobs[3], jobs[0]]
    assert "bob" not in of_ann.text
    assert "reports" not in of_ann.text, "a queue that only other tenants use"
    for number in (jobs[1], jobs[2], 999_999):
        answer = read("jobs", role="admin", whose="ann", job=number)
        assert f"There is no job {number}, or you have no access to it." in answer.text
        assert "canary-of-bob" not in answer.text
    assert "close_day" not in read("jobs", role="admin", whose="ann", job=jobs[0]).text


def test_secrets_are_masked(read: Read, jobs: list[int]) -> None:
    answer = read("jobs", role="admin", job=jobs[0])
    assert "api_token" in answer.text
    assert "hunter2" not in answer.text
    assert "ann@shop.example" not in answer.text


def test_a_viewer_is_offered_no_action(read: Read, jobs: list[int]) -> None:
    page = read("jobs", job=jobs[0]).text
    assert "data-do" not in page
    assert "data-reveal" not in page
    assert "data-edit" not in page
    assert 'data-do="POST jobs/delete"' not in read("jobs", role="operator", job=jobs[0]).text


@pytest.mark.slow
def test_hostile_names_are_shown_as_text(browse: Visits, jobs: list[int]) -> None:
    page = browse(f"jobs?job={jobs[2]}")
    expect(page.locator("#job-arguments")).to_contain_text("<img src=x")
    expect(page.locator(".why")).to_contain_text(HOSTILE)
    expect(page.locator("main img")).to_have_count(0)
    page.locator(".drawer .chip", has_text="<img").click()
    expect(page.locator("tr[data-id]")).to_have_count(1)
    expect(page.locator(".terms .chip")).to_contain_text("<img")


@pytest.mark.slow
def test_the_jobs_page_is_accessible(browse: Visits, inspect_page: InspectPage, jobs: list[int]) -> None:
    page = browse("jobs?q=-tag:canary")
    expect(page.locator("tr[data-id]")).to_have_count(4)
    inspect_page(page, "jobs", DARK_DESKTOP, LIGHT_PHONE, LIGHT_DESKTOP)
    page.locator("tr[data-id] a").last.click()
    expect(page.locator(".drawer")).to_be_visible()
    inspect_page(page, "job", LIGHT_DESKTOP, DARK_DESKTOP, LIGHT_PHONE)


@pytest.mark.slow
@pytest.mark.quick
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
