"""Every page of a new installation says what is missing and how to begin."""

import pytest
from playwright.sync_api import expect

from tests.server.web.html_reader import Read
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.visit import LIGHT_PHONE, InspectPage, Visits, goto

__all__ = ["app", "ask", "connection", "database_url", "served"]

HOSTILE = "<img src=x onerror=alert(1)>\"' {{7*7}}"


@pytest.mark.slow
def test_pages_of_empty_lists_are_accessible(browse: Visits, inspect_page: InspectPage) -> None:
    page = browse("jobs")
    expect(page.locator("h1")).to_have_text("No dead jobs.")
    expect(page.locator(".nothing")).to_contain_text("No job yet")
    inspect_page(page, "jobs-empty")
    goto(page, "schedules")
    expect(page.locator("h1")).to_have_text("There is no schedule yet.")
    expect(page.get_by_text("sereno schedule add")).to_be_visible()
    inspect_page(page, "schedules-empty")
    goto(page, "operations")
    expect(page.locator("h1")).to_have_text("No bulk change yet.")
    inspect_page(page, "operations-empty", LIGHT_PHONE)


def test_a_page_without_queues(read: Read) -> None:
    text = read("queues").text
    assert "No worker is alive." in text
    assert "<code>sereno worker</code>" in text
    assert "No limit yet." in text


def test_a_page_without_log_lines(read: Read) -> None:
    assert "No log lines." in read("logs").text


def test_a_list_without_traces(read: Read) -> None:
    assert "No event with a subject yet." in read("traces").text
    assert read("trace").headers["location"] == "./traces"
    for wrong in ("nothing", "job:7", "\x00", "x" * 501, HOSTILE):
        answer = read("trace", id=wrong)
        assert (answer.status_code, HOSTILE in answer.text) == (404, False)


def test_a_list_without_tenants(read: Read) -> None:
    assert "No tenant yet." in read("tenants").text
    assert "Nothing is known of zed." in read("tenant", name="zed").text
    assert read("tenant").headers["location"] == "./tenants"
    assert read("tenant", name="x" * 501).status_code == 422


def test_a_list_without_errors(read: Read) -> None:
    assert "No errors." in read("errors").text
    for wrong in ("", "x", "<b>", "00000000000c", "0" * 13):
        assert read("error", fingerprint=wrong).status_code == 404


def test_a_page_without_alerts(read: Read) -> None:
    text = read("alerts", "viewer").text
    assert "No alert is open." in text
    assert "No rule yet, so no notifications are sent." in text


def test_health_checks_and_sizes_are_shown(read: Read) -> None:
    text = read("system").text
    assert "All checks pass, with" in text
    assert "no worker is alive" in text
    assert "Start one: sereno worker" in text
    assert "history_done" in text
    assert "No scheduler has run yet." in text
    assert "?show=settings" not in text


def test_roles_for_the_system_page(read: Read) -> None:
    for show in ("tokens", "settings"):
        assert read(f"system?show={show}", "operator").status_code == 403
        assert read(f"system?show={show}", "admin").status_code == 200
        assert read(f"system?show={show}", "admin", "ann").status_code == 403
    assert read("system", "admin", "ann").status_code == 403


def test_an_empty_list_says_how_to_allow_a_procedure(read: Read) -> None:
    assert "sereno procedure allow" in read("procedures").text


def test_jobs_schedules_and_operations_say_how_to_begin(read: Read) -> None:
    for path, text in (
        ("jobs", "No job yet"),
        ("schedules", "sereno schedule add"),
        ("operations", "No bulk change yet."),
        ("groups", "No group yet."),
    ):
        assert text in read(path).text, path


def test_pages_of_notifications_say_how_to_begin(read: Read) -> None:
    for path in ("notifications", "deliveries", "recipients", "preferences", "templates", "channels"):
        answer = read(path)
        assert answer.status_code == 200, path
        # The inbox always exists.
        assert ('class="nothing"' in answer.text) == (path != "channels"), path
    assert "No deliveries in the last 24 hours." in read("notifications").text


def test_the_archive_page_says_how_to_turn_the_archive_on(read: Read) -> None:
    text = read("archive").text
    assert "The archive is off" in text
    assert "SERENO_ARCHIVE_URL=disk" in text
    assert "Archive now" not in text
    assert "No finished job is stored yet." in text
