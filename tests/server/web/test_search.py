"""The search field of every list has one grammar: matches are shown, and errors are marked."""

import re
from collections.abc import Callable
from html import unescape
from urllib.parse import quote_plus

import psycopg
import pytest
from playwright.sync_api import Page, expect

from sereno import Sereno
from tests.facts import one, until
from tests.server.api.conftest import Ask, Served
from tests.server.api.world import FINGERPRINT, Things, fill, fill_over_http
from tests.server.web.html_reader import Read, reader
from tests.server.web.visit import Visits

ANN, BOB = "canary-ann", "canary-bob"


@pytest.fixture
def tenants(app: Sereno, ask: Ask) -> tuple[Things, Things]:
    made = Things("ann-tenant", ANN), Things("bob-tenant", BOB)
    fill(app, *made)
    fill_over_http(ask("admin"), *made)
    return made


@pytest.fixture
def read(ask: Ask, served: Served) -> Read:
    return reader(ask, served)


# For each page: its parameters, a search that finds rows of ann, and the text of a row of ann and of a row of bob.
PAGES: dict[str, tuple[dict[str, str], str, str, str]] = {
    "deliveries": ({}, "state:failed recipient:*ann*", f"{ANN}-recipient</td>", f"{BOB}-recipient</td>"),
    "notifications": ({}, "type:tender.* tenant:ann*", f"{ANN}-subject</td>", f"{BOB}-subject</td>"),
    "recipients": ({}, "channel:pager ann", f">{ANN}-recipient</a>", f">{BOB}-recipient</a>"),
    "schedules": ({}, "kind:daily -tenant:bob-tenant", f'data-id="{ANN}-schedule"', f'data-id="{BOB}-schedule"'),
    "tenants": ({}, "paused:yes tenant:ann*", 'data-focus="tenant ann-tenant"', 'data-focus="tenant bob-tenant"'),
    "system": ({"show": "audit"}, f"actor:{ANN}* at:1h..", f">{ANN}-actor</a>", f">{BOB}-actor</a>"),
}


def test_every_page_shows_the_matches(read: Read, tenants: tuple[Things, Things]) -> None:
    for path, (given, search, mine, other) in PAGES.items():
        whole = unescape(read(path, "operator", **given).text)
        assert mine in whole, path
        assert other in whole, path
        found = unescape(read(path, "operator", **given, q=search).text)
        assert mine in found, (path, found)
        assert other not in found, path
        assert f'value="{search}"' in found, path
        nothing = unescape(read(path, "operator", **given, q="zzz").text)
        assert mine not in nothing, path
        assert 'class="nothing"' in nothing, path


def test_errors_are_searched(read: Read, tenants: tuple[Things, Things]) -> None:
    row = f'data-focus="error {FINGERPRINT}"'
    assert row in read("errors", q="task:work type:OSError canary").text
    assert row not in read("errors", q="task:work -type:OSError").text
    assert "No error matches." in read("errors", q="count:>99").text


def test_an_invalid_search_is_marked_at_its_position(read: Read, tenants: tuple[Things, Things]) -> None:
    for path, (given, _, mine, _) in {**PAGES, "errors": ({}, "", FINGERPRINT, "")}.items():
        page = unescape(read(path, "operator", **given, q="one stat:dead").text)
        assert "The search is invalid." in page or path == "notifications", path
        assert 'at character 5 of the search: there is no field "stat"' in page, path
        assert "one <mark>s</mark>tat:dead</pre>" in page, path
        assert "Fields of this list: " in page, path
        assert mine not in page, path


def test_bounded_searches_show_their_bound(read: Read, tenants: tuple[Things, Things]) -> None:
    notice = "searched among the newest hundred thousand"
    for path in ("deliveries", "notifications", "recipients"):
        assert notice in read(path, q="canary").text
        assert notice not in read(path).text
    assert "searched among 100,000 keys at a time" in read("schedules", q="canary").text.replace("\u202f", ",")
    assert "Searched among the newest" in read("system", show="audit", q="canary").text


def test_a_tenant_finds_only_its_own_rows_on_every_page(read: Read, tenants: tuple[Things, Things]) -> None:
    for path in ("deliveries", "notifications", "recipients", "schedules"):
        for search in ("canary", "tenant:*", "tenant:ann-tenant,bob-tenant", "-zzz"):
            page = read(path, "operator", "ann-tenant", q=search).text
            assert BOB not in page, (path, search)
        assert PAGES[path][2] in unescape(read(path, "operator", "ann-tenant", q="canary").text)


def test_masked_values_cannot_be_found_by_guessing(read: Read, app: Sereno) -> None:
    app.recipients.upsert("ana", {}, data={"pin": "1234"})
    for guess in ("data.pin:1234", "data.pin:9999"):
        page = read("recipients", q=guess).text
        assert "data.pin is masked: only an operator can search by it" in page
        assert ">ana</a>" not in page
    assert ">ana</a>" in read("recipients", "operator", q="data.pin:1234").text


def test_copied_commands_have_the_same_search(read: Read, tenants: tuple[Things, Things]) -> None:
    page = unescape(read("deliveries", q="state:failed -channel:email").text)
    assert "sereno delivery list -- 'state:failed -channel:email'" in page
    assert f"/api/v1/deliveries?q={quote_plus('state:failed -channel:email')}" in page
    assert "sereno schedule list '--search=-kind:cron menu'" in unescape(read("schedules", q="-kind:cron menu").text)
    assert "sereno recipient list --search=ann" in unescape(read("recipients", q="ann").text)
    assert "sereno event list -- type:x" in unescape(read("notifications", q="type:x").text)
    assert "sereno error list --since 24h -- type:x" in unescape(read("errors", q="type:x").text)


def test_deliveries_are_searched_and_all_that_match_are_requeued(
    tenants: tuple[Things, Things],
    browse: Visits,
    inspect_page: Callable[[Page, str], None],
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
