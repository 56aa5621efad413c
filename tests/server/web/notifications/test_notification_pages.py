"""The pages of notifications show outcomes, reasons and recipients. All tests share their rows."""

import json
import re
from html import unescape

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.server.api.conftest import Ask
from tests.server.web.html_reader import Read
from tests.server.web.notifications.notified_events import ADDRESS, HOSTILE, NotifiedEvents, notify
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.visit import DARK_PHONE, LIGHT_DESKTOP, InspectPage, Visits, goto

__all__ = ["app", "ask", "connection", "database_url", "served"]


@pytest.fixture(scope="module")
def notified(app: Sereno, connection: psycopg.Connection) -> NotifiedEvents:
    return notify(app, connection)


def _ids(page: str) -> set[int]:
    return {int(found) for found in re.findall(r'data-focus="delivery (\d+)"', page)}


@pytest.mark.slow
def test_the_overview_shows_outcomes(read: Read, notified: NotifiedEvents) -> None:
    page = read("notifications").text
    assert f"event?id={notified.event}" in page
    assert "&lt;img src=x" in page
    assert "<img" not in page
    assert read("notifications", type="alarm").text.count('data-focus="event ') == 0
    assert f"event?id={notified.event}" not in read("notifications", tenant="r42").text
    assert read("notifications", range="7d", before="x").status_code == 200


def test_the_filter_of_deliveries_is_in_the_query(read: Read, notified: NotifiedEvents) -> None:
    mine = notified.deliveries
    assert _ids(read("deliveries").text) == set(mine.values())
    assert _ids(read("deliveries", state="failed,dead").text) == {mine["fails pager"]}
    assert _ids(read("deliveries", recipient="ana", channel="pager").text) == {mine["ana pager"]}
    assert _ids(read("deliveries", subject=HOSTILE, state="skipped").text) == {mine["off pager"], mine["off in_app"]}
    assert _ids(read("deliveries", event=notified.theirs).text) == {mine[f"{HOSTILE} pager"], mine[f"{HOSTILE} in_app"]}
    assert "There is no such recipient." in read("deliveries", recipient="unknown").text
    assert "No delivery matches." in read("deliveries", type="alarm").text


def test_invalid_filters_of_deliveries_are_ignored(
    read: Read, notified: NotifiedEvents, subtests: pytest.Subtests
) -> None:
    for name, value in (("delivery", "x"), ("delivery", "9" * 30), ("before", "-1"), ("state", "lost"), ("event", "²")):
        with subtests.test(name, value=value):
            assert read("deliveries", **{name: value}).status_code == 200


def test_a_delivery_is_shown_with_an_explanation(read: Read, notified: NotifiedEvents) -> None:
    page = read("deliveries", delivery=notified.deliveries["fails pager"]).text
    assert "it failed permanently" in page
    assert "too_big" in page
    assert "<img" not in page
    assert "ana@shop.example" not in page
    skipped = read("deliveries", delivery=notified.deliveries["off pager"]).text
    assert "nothing was sent: preference off, by the preference of off for event tender.published" in skipped
    assert "data-do" not in page, "a viewer changes nothing"
    assert "POST deliveries/requeue" in read("deliveries", "operator", delivery=notified.deliveries["fails pager"]).text


def test_addresses_are_masked(read: Read, notified: NotifiedEvents) -> None:
    for path, params in (
        ("deliveries", {"delivery": str(notified.deliveries["ana pager"])}),
        ("recipient", {"key": "ana"}),
        ("event", {"id": str(notified.event)}),
        ("recipient", {"key": "ana", "why": "tender.published"}),
    ):
        page = read(path, "admin", **params)
        assert page.status_code == 200
        assert ADDRESS not in page.text
        assert "ana@shop.example" not in page.text


def test_an_event_shows_its_funnel(read: Read, notified: NotifiedEvents) -> None:
    page = read("event", id=notified.event)
    assert "tender.published:" in page.text
    assert f"deliveries?event={notified.event}&amp;state=failed&amp;channel=pager" in page.text
    assert f"trace?id=event%3A{notified.event}" in page.text
    assert read("event", id=999_999).status_code == 404
    assert read("event", id="x").status_code == 404


def test_a_recipients_page_explains_why_they_were_notified_or_not(read: Read, notified: NotifiedEvents) -> None:
    by_kind = read("recipient", key="off", why="tender.published").text
    assert "nothing was sent: preference off" in by_kind
    by_number = read("recipient", key="off", why=notified.event).text
    assert "nothing was sent: preference off" in by_number
    assert "There is no event 999999 for them." in read("recipient", key="off", why=999_999).text
    outlook = read("recipient", key="ana", why="alarm").text
    assert "If it happened now, by pager: it would be sent immediately, it is critical." in outlook
    assert read("recipient", key="unknown").status_code == 404


def test_a_tenant_sees_no_notifications_of_another(read: Read, notified: NotifiedEvents) -> None:
    for path in ("notifications", "deliveries", "recipients", "preferences"):
        page = read(path, "admin", whose="b")
        assert page.status_code == 200, path
        assert "T1" not in page.text
        assert "&lt;img" not in page.text
        assert read(path, "admin", whose="b", tenant="r42").status_code == 404
    for path in ("templates", "template", "template-preview", "channels"):
        assert read(path, "admin", whose="b").status_code == 403
    assert read("event", "admin", whose="b", id=notified.theirs).status_code == 404
    assert read("recipient", "admin", whose="b", key=HOSTILE).status_code == 404
    foreign = read("deliveries", "admin", whose="b", delivery=notified.deliveries["ana pager"])
    assert "or you have no access to it" in foreign.text
    assert "tender.published ·" not in foreign.text
    own = read("recipient", "viewer", whose="r42", key=HOSTILE, why=notified.event).text
    assert f"There is no event {notified.event} for them." in own
    assert read("event", "viewer", whose="r42", id=notified.theirs).status_code == 200


def test_preferences_are_shown_as_a_matrix(read: Read, notified: NotifiedEvents) -> None:
    page = read("recipient", "admin", key="off").text
    assert "their own preference for tender.published" in page
    assert "always sent: it is critical" in page
    assert "opt-in only" in page
    assert "data-do" not in read("recipient", "viewer", key="off").text
    defaults = read("preferences", "admin").text
    assert "Event types: 3; always sent: 1; opt-in: 1." in defaults


def test_all_that_match_are_requeued_by_the_filter_of_the_list(read: Read, ask: Ask, notified: NotifiedEvents) -> None:
    page = read("deliveries", "operator", channel="pager", type="tender.published").text
    found = re.search(r'data-wanted="([^"]*)"', page)
    assert found is not None
    wanted = json.loads(unescape(found[1]))
    dry = ask("operator").post("/deliveries/requeue", json={**wanted, "dry_run": True}).json()
    assert (dry["total"], dry["by_state"]) == (1, {"failed": 1})
    skipped = read("deliveries", "operator", state="skipped").text
    assert 'name="all"' not in skipped


@pytest.mark.slow
def test_the_notification_pages_are_accessible(
    browse: Visits, inspect_page: InspectPage, notified: NotifiedEvents
) -> None:
    page = browse("notifications")
    # axe cannot inspect a sandboxed document.
    browse.forgive("Failed to execute 'postMessage' on 'DOMWindow'")
    for path in (
        "notifications",
        f"deliveries?delivery={notified.deliveries['fails pager']}",
        f"event?id={notified.event}",
        "recipients",
        "recipient?key=off&why=tender.published",
        "templates",
        "template?event=tender.published&channel=pager",
        "channels",
        "preferences",
    ):
        goto(page, path)
        expect(page.locator("h1")).to_be_visible()
        inspect_page(page, path.partition("?")[0], LIGHT_DESKTOP, DARK_PHONE)
