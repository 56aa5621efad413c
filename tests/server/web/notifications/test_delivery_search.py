"""Deliveries are searched in the browser, and all that match are sent again."""

import re

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.facts import one, until
from tests.server.api.conftest import Ask
from tests.server.api.world import Things, fill, fill_over_http
from tests.server.web.visit import InspectPage, Visits

ANN, BOB = "canary-ann", "canary-bob"


@pytest.fixture
def tenants(app: Sereno, ask: Ask) -> tuple[Things, Things]:
    made = Things("ann-tenant", ANN), Things("bob-tenant", BOB)
    fill(app, *made)
    fill_over_http(ask("admin"), *made)
    return made


@pytest.mark.slow
def test_deliveries_are_searched_and_all_that_match_are_requeued(
    tenants: tuple[Things, Things],
    browse: Visits,
    inspect_page: InspectPage,
    connection: psycopg.Connection,
) -> None:
    ann, bob = tenants
    page = browse("deliveries", "operator")
    field = page.get_by_label("Search deliveries")
    table = page.locator("#deliveries-table")
    expect(table).to_contain_text(BOB)
    field.fill("state:failed channel:pager event:tender.* recipient:canary-ann* created:2d..")
    field.press("Enter")
    expect(page).to_have_url(re.compile("q=state%3Afailed"))
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(table).to_contain_text(ann.named("recipient"))
    expect(page.locator("h1")).to_have_text("One delivery; one failed and needs attention.")
    expect(page.locator("#deliveries-head")).to_contain_text("searched among the newest hundred thousand")
    inspect_page(page, "deliveries-search")
    page.locator(".bulk [name=all]").check()
    page.get_by_role("button", name="Send again").click()
    expect(page.locator("#ask-what")).to_contain_text("1")
    page.locator("#ask button[value=yes]").click()
    states = "select string_agg(state, ' ' order by id) from sereno.deliveries where channel = 'pager' and id = any(%s)"
    until(lambda: one(connection, states, [ann.delivery, bob.delivery]) in ("pending failed", "failed pending"))
    assert one(connection, "select state from sereno.deliveries where id = %s", ann.delivery) == "pending"
    field.fill("state:failed chanel:pager")
    field.press("Enter")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("at character 14 of the search")
    expect(alert).to_contain_text("did you mean channel?")
    expect(alert.locator("mark")).to_have_text("c")
    expect(page.get_by_label("Search deliveries")).to_have_value("state:failed chanel:pager")
    inspect_page(page, "deliveries-search-wrong")
    alert.get_by_role("link", name="Start again").click()
    expect(table).to_contain_text(BOB)
