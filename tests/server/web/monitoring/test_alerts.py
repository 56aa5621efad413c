"""The alerts page: open alerts are silenced; rules are created, changed, tested and deleted."""

import psycopg
import pytest
from playwright.sync_api import expect

from tests.facts import one
from tests.server.api.conftest import Ask
from tests.server.web.html_reader import Read
from tests.server.web.visit import InspectPage, Visits

HOSTILE = "<img src=x onerror=alert(1)>"
# No worker runs, so nothing is sent.
ADDRESS = "http://127.0.0.1:9/hooks/secret-part"


@pytest.fixture
def alert(ask: Ask, connection: psycopg.Connection) -> int:
    """An open alert of a rule."""
    body = {"to": [{"channel": "pager", "address": ADDRESS}], "kinds": ["queue.late"], "note": HOSTILE}
    answer = ask("admin").put("/alerts/rules/late", json=body)
    assert answer.is_success, answer.text
    number: int = one(
        connection,
        "insert into sereno.alerts (rule, kind, subject, level, sentence, details, words, remedy, opened_at, "
        "last_seen_at) "
        "values ('late', 'queue.late', 'x', 'bad', 'x', '{}', %s, 'look', sereno.now(), sereno.now()) returning id",
        HOSTILE,
    )
    return number


def test_open_alerts_and_rules_are_shown(read: Read, alert: int) -> None:
    text = read("alerts", "viewer").text
    assert "One alert is open." in text
    assert "no notification sent yet" in text
    assert "queue.late" in text
    assert "secret-part" not in text
    assert HOSTILE not in text
    assert "data-rule" not in text
    assert "data-do=" not in text
    assert "secret-part" not in read("alerts", "admin").text
    assert "No alert is open." in read("alerts?rule=other", "viewer").text
    assert read("alerts", "admin", "ann").status_code == 403


@pytest.mark.slow
def test_an_alert_is_silenced_and_unsilenced(
    browse: Visits, inspect_page: InspectPage, alert: int, connection: psycopg.Connection
) -> None:
    page = browse("alerts", "operator")
    inspect_page(page, "alerts")
    row = page.locator("#alerts-open li")
    row.get_by_role("button", name="Silence").click()
    page.locator("#silence-dialog button.go").click()
    expect(row).to_contain_text("silenced by")
    assert one(connection, "select silenced_until > sereno.now() from sereno.alerts where id = %s", alert)
    row.get_by_role("button", name="End the silence").click()
    expect(row.get_by_role("button", name="Silence")).to_be_visible()


@pytest.mark.slow
@pytest.mark.quick
def test_a_rule_is_created_changed_tested_and_deleted(
    browse: Visits, inspect_page: InspectPage, alert: int, connection: psycopg.Connection
) -> None:
    page = browse("alerts")
    page.get_by_role("button", name="New rule").click()
    page.locator("#rule-name").fill("loud")
    page.locator("#targets [name=channel]").select_option("webhook")
    page.locator("#targets [name=address]").fill("https://hooks.example.com/x")
    page.locator("#targets [name=keys]").fill('{"secrets": ["whsec_of-a-test"]}')
    page.get_by_label("log lines").check()
    page.locator("#log-count").fill("5")
    inspect_page(page, "alert-rule")
    page.locator("#rule-form button.go").click()
    row = page.locator("#alerts-rules tbody tr").filter(has_text="loud")
    expect(row).to_contain_text("5 log lines within 5 m")

    assert "whsec_of-a-test" in one(connection, "select targets::text from sereno.alert_rules where name = 'loud'")
    assert "whsec_of-a-test" not in page.content()

    late = page.locator("#alerts-rules tbody tr").filter(has_text="late")
    late.get_by_role("button", name="Edit").click()
    expect(page.locator("#rule-name")).to_have_value("late")
    page.locator("#rule-for").fill("60")
    page.locator("input[name=kind][value='queue.unserved']").check()
    page.locator("#rule-form button.go").click()
    expect(late).to_contain_text("after 1 m")
    # The masked address has stayed unchanged.
    stored = one(connection, "select row_to_json(r)::text from sereno.alert_rules as r where name = 'late'")
    assert ADDRESS in stored
    assert "queue.unserved" in stored

    row.get_by_role("button", name="Test").click()
    page.locator("#ask button.go").click()
    expect(page.locator("#toast")).to_contain_text("Test")
    assert one(connection, "select count(*) from sereno.jobs where task = 'sereno.alert'") == 1
    row.get_by_role("button", name="Remove").click()
    page.locator("#ask button.go").click()
    expect(row).to_have_count(0)


@pytest.mark.slow
def test_the_alerts_page_is_accessible_dark_and_on_a_phone(
    browse: Visits, inspect_page: InspectPage, alert: int
) -> None:
    inspect_page(browse("alerts", dark=True, width=375, language="es"), "alerts")
