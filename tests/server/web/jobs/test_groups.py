"""Dependencies and groups on the pages: details of a job, the panel of a group, traces. All tests share their rows."""

from dataclasses import dataclass

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Dead, Sereno
from sereno.jobs.group import GroupHandle
from sereno.server.web.jobs.groups import ROWS
from tests.facts import one
from tests.jobs.job_steps import decided, end, session, take
from tests.server.web.html_reader import Read
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.visit import InspectPage, Visits

__all__ = ["app", "ask", "connection", "database_url", "served"]

# Light and dark, on a desktop and on a phone.
LOOKS = ((False, 1440), (True, 1440), (False, 390), (True, 390))
GROUPS = {"en": "Groups", "es": "Grupos", "pt": "Grupos"}


@dataclass
class Rows:
    """A group with a dead job and jobs that follow it, and a job of another tenant that waits."""

    group: GroupHandle
    then: int
    last: int
    dead: int
    other: int


@pytest.fixture(scope="module")
def rows(app: Sereno, connection: psycopg.Connection) -> Rows:
    @app.task(name="load_store")
    def load(store: int) -> None: ...

    @app.task(name="monthly_report")
    def report() -> None: ...

    using = {"tenant": "ann", "trace": "sales"}
    jobs = [load.using(**using).job(number) for number in range(12)]  # type: ignore[arg-type]  # two texts
    group = app.group(jobs, then=report.using(**using).job(), name="sales of november", tenant="ann").enqueue()  # type: ignore[arg-type]
    assert group.then is not None
    last = report.using(after=[group.then], **using).enqueue()  # type: ignore[arg-type]
    owner = session(connection, queues={"default": 20}, tasks=("load_store",))
    claimed = take(connection, owner, 8, tasks=("load_store",))
    end(connection, owner, claimed[:7], decided())
    end(connection, owner, claimed[7:], decided(Dead("no such store")))
    other = load.using(tenant="bob", after=[last]).enqueue(99)
    return Rows(group, group.then.id, last.id, claimed[7].id, other.id)


@pytest.mark.slow
def test_the_details_of_a_job_show_its_links(read: Read, rows: Rows) -> None:
    page = read("jobs", job=rows.then).text
    assert "Waits for" in page
    assert "7 of 12 jobs have ended" in page
    assert f"group%3A{rows.group.id}" in page
    assert "Jobs that wait for it" in page
    assert f"job={rows.last}" in page
    assert f"It waits for group {rows.group.id}: 5 of 12 jobs remain, 1 is dead." in page
    member = read("jobs", job=rows.dead).text
    assert "sales of november" in member
    assert f"job={rows.then}" in member
    assert "Waits for" not in member


def test_the_panel_of_a_group(read: Read, rows: Rows, connection: psycopg.Connection) -> None:
    page = read("jobs", q=f"group:{rows.group.id}").text
    assert 'id="jobs-group"' in page
    assert "7 of 12 jobs have ended" in page
    assert "Retry dead jobs" not in page, "a viewer may not"
    operator = read("jobs", role="operator", q=f"group:{rows.group.id}").text
    assert "Retry dead jobs" in operator
    assert f"POST groups/{rows.group.id}/cancel" in operator
    assert 'id="jobs-group"' not in read("jobs", q="group:4711").text
    assert one(connection, "select count(*) from sereno.jobs") > 0


def test_groups_are_listed_with_their_progress(read: Read, rows: Rows, app: Sereno) -> None:
    page = read("groups").text
    assert "Groups with dead jobs: 1." in page
    assert "sales of november" in page
    assert "7 / 12" in page
    assert f"jobs?q=group%3A{rows.group.id}" in page
    assert f"jobs?job={rows.then}" in page
    assert "sales of november" in read("groups", whose="ann").text
    assert "No group yet." in read("groups", whose="bob").text
    assert read("groups", whose="bob", tenant="ann").status_code == 404


def test_groups_are_paged(read: Read, rows: Rows, app: Sereno) -> None:
    made = [app.group([], name=f"empty {number}", tenant="zed").enqueue().id for number in range(ROWS + 1)]
    newest = read("groups", tenant="zed").text
    assert "All groups have ended." in newest
    assert "empty 1<" in newest
    assert "empty 0<" not in newest
    assert f"groups?tenant=zed&amp;before={made[1]}" in newest
    assert "empty 0<" in read("groups", tenant="zed", before=made[1]).text


def test_a_tenant_sees_nothing_of_the_links_of_others(read: Read, rows: Rows) -> None:
    page = read("jobs", whose="bob", job=rows.other).text
    assert f"It waits for 1 job: {rows.last}." in page
    assert "monthly_report" not in page
    assert 'id="jobs-group"' not in read("jobs", whose="bob", q=f"group:{rows.group.id}").text
    of_ann = read("jobs", whose="ann", job=rows.last).text
    assert "load_store" not in of_ann.split("Jobs that wait for it")[1].split("</ul>")[0]


def test_waiting_jobs_are_counted(read: Read, rows: Rows) -> None:
    assert "3 waiting for other jobs" in read("jobs").text
    assert "<dt>waiting</dt><dd>3</dd>" in read("queues").text


def test_a_trace_shows_dependencies(read: Read, rows: Rows) -> None:
    page = read("trace", id="sales").text
    assert 'class="dependency"' in page
    assert f"after {rows.then}" in page


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "es", "pt"])
def test_links_and_groups_in_a_browser(browse: Visits, inspect_page: InspectPage, rows: Rows, language: str) -> None:
    looks = LOOKS if language == "en" else LOOKS[::3]
    contrast = language == "en"
    page = browse(f"jobs?q=group:{rows.group.id}&job={rows.then}", language=language)
    expect(page.locator("#jobs-group progress")).to_be_visible()
    inspect_page(page, f"group-{language}", *looks, contrast=contrast)
    page.get_by_role("link", name=GROUPS[language], exact=True).click()
    expect(page.locator("#groups-list tbody tr").first).to_be_visible()
    inspect_page(page, f"groups-{language}", *looks, contrast=contrast)
    page.go_back()
    page.locator(f".linked a[href*='job={rows.last}']").click()
    expect(page.locator(".drawer .linked").first).to_be_visible()
    inspect_page(page, f"links-{language}", *looks, contrast=contrast)
    page = browse("trace?id=sales", language=language)
    expect(page.locator("path.dependency").first).to_be_attached()
    inspect_page(page, f"trace-{language}", *looks, contrast=contrast)


@pytest.mark.slow
def test_dead_jobs_are_retried_from_the_panel(browse: Visits, app: Sereno, connection: psycopg.Connection) -> None:
    @app.task(name="retried")
    def retried() -> None: ...

    group = app.group([retried.job()], then=retried.job()).enqueue()
    owner = session(connection, tasks=("retried",))
    (job,) = take(connection, owner, 1, tasks=("retried",))
    end(connection, owner, [job], decided(Dead("no")))
    page = browse(f"jobs?q=group:{group.id}", role="operator")
    page.get_by_role("button", name="Retry dead jobs").click()
    page.locator("dialog[open] button.go, dialog[open] button:has-text('Retry')").first.click()
    expect(page.locator("#jobs-group .states")).to_contain_text("ready")
    assert one(connection, "select state from sereno.jobs where id = %s", job.id) == "ready"
