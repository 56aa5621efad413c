"""A schedule is created on the page, with a preview of its next runs in its own time zone."""

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.facts import one
from tests.server.web.visit import DARK_PHONE, LIGHT_DESKTOP, InspectPage, Visits


@pytest.mark.slow
def test_a_schedule_is_created_with_a_preview(
    app: Sereno, browse: Visits, connection: psycopg.Connection, inspect_page: InspectPage
) -> None:
    @app.task(queue="reports")
    def close_day(branch: str, dry_run: bool = False) -> None: ...

    page = browse("schedules", zone="Asia/Tokyo")
    page.get_by_role("button", name="New schedule").click()
    dialog = page.locator("#edit-dialog")
    expect(dialog.locator(".says")).to_contain_text("03:00")
    dialog.get_by_label("key").fill("close day/r42")
    dialog.get_by_label("time of day").fill("04:30")
    dialog.get_by_label("zone").fill("America/Sao_Paulo")
    expect(dialog.locator("#edit-preview li").first).to_contain_text("04:30:00")
    expect(dialog.locator("#edit-preview li")).to_have_count(10)
    expect(dialog.locator(".says")).to_contain_text("Sao")
    dialog.get_by_label("task").fill("close_day")
    dialog.get_by_label("task").blur()
    expect(dialog.get_by_label("arguments")).to_have_value('{"branch":""}')
    expect(dialog.get_by_label("queue")).to_have_value("reports")
    dialog.get_by_label("arguments").fill('{"branch": "r42"}')
    inspect_page(page, "new-schedule", LIGHT_DESKTOP, DARK_PHONE)
    dialog.get_by_role("button", name="Save").click()
    page.wait_for_url("**/schedule?key=close*")
    expect(page.locator("#schedule-coming")).to_contain_text("04:30:00")
    assert (
        one(connection, "select rule ->> 'tz' from sereno.schedules where key = 'close day/r42'") == "America/Sao_Paulo"
    )
    assert one(connection, "select count(*) from sereno.audit where action = 'schedule.write'") == 1

    again = browse("schedules")
    again.get_by_role("button", name="New schedule").click()
    dialog = again.locator("#edit-dialog")
    dialog.get_by_label("key").fill("close day/r42")
    dialog.get_by_label("task").fill("close_day")
    dialog.get_by_role("button", name="Save").click()
    expect(again.locator("#toast .bad")).to_have_text("There is a schedule with this key already.")


@pytest.mark.slow
def test_only_admins_create_schedules(browse: Visits) -> None:
    page = browse("schedules", "operator")
    expect(page.get_by_role("button", name="New schedule")).to_have_count(0)
