"""Filters complete fields and values, and are saved under a name; `/` reaches the one of the page."""

import psycopg
import pytest
from playwright.sync_api import Page, Route, expect

from sereno import Every, Sereno
from sereno.server.web.page_request import SECTIONS
from tests.facts import one
from tests.server.api.conftest import Served
from tests.server.web.visit import DARK_DESKTOP, LIGHT_DESKTOP, InspectPage, Visits

# Pages with a filter of their own.
PAGES = (
    "schedules",
    "deliveries",
    "notifications",
    "recipients",
    "errors",
    "tenants",
    "logs",
    "system?show=audit",
)


@pytest.fixture
def jobs(app: Sereno) -> None:
    @app.task(name="billing.reconcile")
    def reconcile(account: str = "") -> None: ...

    @app.task(name="billing.remind")
    def remind() -> None: ...

    for task in (reconcile, reconcile, remind):
        task.using(tenant="ann").enqueue()
    app.schedules.upsert("menu sync", reconcile.job(), Every("1h"))


def _options(page: Page) -> list[str]:
    expect(page.locator("#completion")).to_be_visible()
    return page.locator("#completion li span.mono").all_inner_texts()


@pytest.mark.slow
def test_a_search_is_completed_from_the_keyboard(browse: Visits, jobs: None, inspect_page: InspectPage) -> None:
    page = browse("jobs", "viewer")
    page.keyboard.press("/")
    search = page.get_by_label("Search jobs")
    expect(search).to_be_focused()
    expect(search).to_have_role("combobox")
    page.keyboard.type("-ta")
    expect(page.locator("#completion li")).to_have_text(["-task:", "-tag:"])
    inspect_page(page, "completion", LIGHT_DESKTOP, DARK_DESKTOP)
    page.keyboard.press("Tab")
    expect(search).to_have_value("-task:")
    expect(page.locator("#completion li")).to_have_text(["billing.reconcile", "billing.remind"])
    page.keyboard.type("billing.rem")
    expect(page.locator("#completion li")).to_have_text(["billing.remind"])
    page.keyboard.press("ArrowDown")
    expect(search).to_have_attribute("aria-activedescendant", "completion-0")
    page.keyboard.press("Enter")
    expect(search).to_have_value("-task:billing.remind")
    expect(page.locator("#completion")).to_be_hidden()
    page.keyboard.type(" state:de")
    expect(page.locator("#completion li")).to_have_text(["dead"])
    page.keyboard.press("Escape")
    expect(page.locator("#completion")).to_be_hidden()
    expect(search).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=*")


@pytest.mark.slow
def test_every_filter_completes_its_fields(browse: Visits, site: Served, jobs: None) -> None:
    page = browse("jobs")
    for path in PAGES:
        page.goto(f"{site.url}/{path}")
        expect(page.locator("html[data-ready]")).to_have_count(1)
        page.keyboard.press("/")
        field = page.locator("main form[role=search] input:not([type=hidden])").first
        expect(field).to_be_focused()
        expect(page.locator("#completion li").first).to_be_visible()
        assert all(each.endswith((":", ".")) for each in _options(page)), path
    page.goto(f"{site.url}/schedules")
    expect(page.locator("html[data-ready]")).to_have_count(1)
    page.keyboard.press("/")
    page.keyboard.type("key:me")
    expect(page.locator("#completion li")).to_have_text(["menu sync"])
    page.keyboard.press("Tab")
    expect(page.get_by_label("Search schedules")).to_have_value('key:"menu sync"')


@pytest.mark.slow
def test_a_search_is_saved_applied_and_deleted(
    browse: Visits, jobs: None, connection: psycopg.Connection, inspect_page: InspectPage
) -> None:
    page = browse("schedules?q=task:billing.*", "operator")
    page.locator("main").get_by_role("button", name="Saved searches").click()
    dialog = page.locator("#saved")
    expect(dialog.locator("[data-empty]")).to_be_visible()
    expect(dialog.get_by_label("Search", exact=True)).to_have_value("task:billing.*")
    dialog.get_by_label("Name").fill("Billing")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(dialog.get_by_role("link", name="Billing")).to_be_visible()
    inspect_page(page, "saved-searches", LIGHT_DESKTOP, DARK_DESKTOP)
    assert one(connection, "select list || ' ' || text from sereno.saved_searches") == "schedules task:billing.*"
    page.goto(page.url.split("?")[0])
    expect(page.locator("html[data-ready]")).to_have_count(1)
    page.keyboard.press("/")
    page.locator("#completion li", has_text="Billing").click()
    page.wait_for_url("**/schedules?q=task*")

    viewer = browse("schedules", "viewer")
    viewer.locator("main").get_by_role("button", name="Saved searches").click()
    expect(viewer.locator("#saved li")).to_have_count(1)
    expect(viewer.locator("#saved form")).to_have_count(0)

    expect(page.locator("html[data-ready]")).to_have_count(1)
    page.locator("main").get_by_role("button", name="Saved searches").click()
    dialog.get_by_role("button", name="Delete Billing").click()
    page.locator("#ask .go").click()
    expect(dialog.locator("[data-empty]")).to_be_visible()


@pytest.mark.slow
def test_the_help_lists_the_shortcuts_that_work(browse: Visits, jobs: None) -> None:
    page = browse("jobs")
    page.keyboard.press("?")
    listed = set(page.locator("#keys kbd").all_inner_texts())
    script = page.locator("script[src$='main.js']").get_attribute("src")
    assert script is not None
    handled = set(page.evaluate("path => import(path).then((keys) => keys.KEYS)", script.replace("main.js", "keys.js")))
    handled = {"Esc" if key == "Escape" else key for key in handled}
    assert handled <= listed
    # Those of other modules: g and the letters of the pages, the open job, and suggestions.
    assert listed <= handled | {"g", "r", "c", "↓", "Tab"} | {key for _, _, key, _ in SECTIONS}


@pytest.mark.slow
def test_an_answer_about_earlier_text_does_not_open_the_list(browse: Visits, jobs: None) -> None:
    """It would take the next Escape, which is meant to leave the field."""
    page = browse("jobs", "viewer", own=True)
    held: list[Route] = []
    page.route("**/api/v1/searches/jobs/fields", lambda route: held.append(route))  # noqa: PLW0108 - it has to be a function of Python
    # The pause before the list is asked for again does not pass.
    page.clock.install(time=0)
    page.clock.pause_at(60)
    with page.expect_request("**/api/v1/searches/jobs/fields"):
        page.keyboard.press("/")
    page.keyboard.type("zz")
    with page.expect_response("**/api/v1/searches/jobs"):
        held[0].continue_()
    # A later request has been answered: so the page has handled this answer.
    page.evaluate("fetch(location.href).then((response) => response.text())")
    expect(page.locator("#completion")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Search jobs")).not_to_be_focused()
