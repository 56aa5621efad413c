"""The pages of schedules: their content for each user, and all actions."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import psycopg
import pytest
from playwright.sync_api import Page, expect

from sereno import Sereno
from sereno.schedules.bulk_write import described, write
from sereno.schedules.operations import run_now
from tests.facts import one
from tests.schedules.schedule_steps import insert_run, made
from tests.server.api.conftest import Ask, Served
from tests.server.web.html_reader import Read
from tests.server.web.visit import DARK_DESKTOP, DARK_PHONE, InspectPage, Visits, goto

Connection = psycopg.Connection[Any]
HOSTILE = "<img src=x onerror=alert(1)>\"'{{7*7}} &amp;"
RIGA = ZoneInfo("Europe/Riga")
# Every day has a noon, also when the clock changes.
DAILY = {"kind": "daily", "at": "12:00", "tz": "Europe/Riga"}


@pytest.fixture
def put(app: Sereno) -> Callable[..., None]:
    @app.task
    def work(name: str = "x", token: str = "") -> None: ...

    def write_schedule(key: str, **fields: Any) -> None:
        given = {"key": key, "task": "work", "when": DAILY, **fields}
        app.database.run(write([described(given, app.new_job)], actor="maria"))

    return write_schedule


@pytest.fixture
def four_schedules(put: Callable[..., None]) -> None:
    """Two schedules of the tenant a, one of b, one without a tenant."""
    for key, tenant in (("menu:1", "a"), ("menu:2", "a"), ("menu:3", "b"), ("close", None)):
        put(key, tenant=tenant)


def keys(page: Page) -> list[str]:
    return [str(row.get_attribute("data-id")) for row in page.locator("#schedule-rows tbody tr").all()]


def schedule_path(key: str) -> str:
    return f"schedule?key={quote(key, safe='')}"


def confirm(page: Page, done: str) -> None:
    """Confirm and wait in the page: a test that blocks elsewhere blocks the browser's requests, too."""
    page.locator("#ask button[value=yes]").click()
    expect(page.locator("#toast")).to_contain_text(done)


@pytest.mark.slow
def test_a_list_shows_counts_failures_and_next_runs(
    four_schedules: None, connection: Connection, browse: Visits, inspect_page: InspectPage
) -> None:
    job = insert_run(connection, "menu:1", "dead")
    insert_run(connection, "menu:1", ago=3600)
    connection.execute("update sereno.schedules set failed_in_row = 1, last_error = 'Gone: away' where key = 'menu:1'")
    page = browse("schedules", "viewer")
    expect(page.locator("h1")).to_have_text("4 schedules. One of them needs attention.")
    row = page.locator("#schedule-rows tbody tr", has_text="menu:1")
    expect(row).to_contain_text("every day at 12:00")
    expect(row).to_contain_text("Gone: away")
    assert row.locator("svg a").count() == 2
    assert row.locator("svg a").last.get_attribute("href") == f"./jobs?job={job}"
    expect(page.locator("#schedules-heat svg")).to_be_visible()
    inspect_page(page, "schedules")


@pytest.mark.slow
def test_the_schedule_pages_are_accessible_dark_and_on_a_phone(
    four_schedules: None, browse: Visits, inspect_page: InspectPage
) -> None:
    page = browse("schedules?span=7d", dark=True)
    expect(page.locator("#schedules-heat svg")).to_be_visible()
    inspect_page(page, "schedules-week", DARK_DESKTOP, DARK_PHONE)
    goto(page, schedule_path("menu:1"))
    expect(page.locator("h1")).to_contain_text("Every day at 12:00, Europe/Riga; next in ")
    inspect_page(page, "schedule", DARK_DESKTOP, DARK_PHONE)


@pytest.mark.slow
def test_the_filter_of_schedules_is_in_the_query(four_schedules: None, browse: Visits) -> None:
    page = browse("schedules?q=menu")
    assert keys(page) == ["menu:1", "menu:2", "menu:3"]
    goto(page, "schedules?q=*2")
    assert keys(page) == ["menu:2"]
    goto(page, "schedules?tenant=b")
    assert keys(page) == ["menu:3"]
    goto(page, "schedules?state=paused")
    expect(page.locator("h1")).to_have_text("No schedule matches.")
    goto(page, "schedules")
    page.locator("input[name=q] >> nth=1").fill("clo")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**q=clo*")
    assert keys(page) == ["close"]


@pytest.mark.slow
def test_a_long_list_of_schedules_comes_in_pages(put: Callable[..., None], browse: Visits) -> None:
    for number in range(53):
        put(f"k{number:02}")
    page = browse("schedules")
    assert len(keys(page)) == 50
    page.get_by_role("link", name="More").click()
    page.wait_for_url("**after=*")
    assert keys(page) == ["k50", "k51", "k52"]


@pytest.mark.quick
def test_a_tenant_sees_only_its_own_schedules(four_schedules: None, browse: Visits, served: Served, ask: Ask) -> None:
    page = browse("schedules", "operator", tenant="b")
    assert keys(page) == ["menu:3"]
    expect(page.locator("h1")).to_have_text("One schedule, and all is well.")
    theirs = ask("viewer", tenant="b")
    for path in ("schedules?tenant=a", "schedules?q=*", "schedules?after=a"):
        text = theirs.get(f"{served.url}/{path}").text
        assert "menu:1" not in text
        assert "menu:3" in text
    assert theirs.get(f"{served.url}/{schedule_path('menu:1')}").status_code == 404
    assert theirs.get(f"{served.url}/{schedule_path('nowhere')}").status_code == 404
    assert theirs.get(f"{served.url}/{schedule_path('menu:3')}").status_code == 200


@pytest.mark.slow
def test_hostile_names_are_shown_as_text(put: Callable[..., None], connection: Connection, browse: Visits) -> None:
    put(HOSTILE, tenant=HOSTILE, args={"name": HOSTILE}, tags=[HOSTILE])
    connection.execute("update sereno.schedules set note = %s, last_error = %s, failed_in_row = 1", [HOSTILE, HOSTILE])
    insert_run(connection, HOSTILE, "dead")
    page = browse("schedules")
    assert keys(page) == [HOSTILE]
    page.locator("#schedule-rows a").first.click()
    expect(page.locator(".sub .mono")).to_have_text(HOSTILE)
    assert page.locator("img").count() == 0
    # The page was just loaded: it does not react to clicks before its scripts are loaded.
    expect(page.locator("html[data-ready]")).to_have_count(1)
    page.locator("[data-dialog=edit-dialog]").click()
    expect(page.locator("#edit-preview li").first).to_be_visible()
    page.locator("#edit .go").click()
    expect(page.locator("#edit-dialog")).to_be_hidden()


@pytest.mark.slow
def test_invalid_queries_cause_no_internal_error(four_schedules: None, read: Read, subtests: pytest.Subtests) -> None:
    for query in ("q=%00", "after=%00", "tenant=%00", "task=" + "x" * 600, "q=%25_%5C", "span=x&state=y"):
        with subtests.test(query=query[:20]):
            assert read(f"schedules?{query}").status_code in (200, 422)
    for query in ("", "key=", "key=%00", "key=" + "x" * 600):
        with subtests.test("an invalid key", query=query[:20]):
            assert read(f"schedule?{query}").status_code in (404, 422)


@pytest.mark.slow
def test_selected_schedules_are_paused_resumed_and_run(
    four_schedules: None, connection: Connection, browse: Visits
) -> None:
    page = browse("schedules", "operator")
    paused = "select string_agg(key, ' ' order by key) from sereno.schedules where state = 'paused'"
    for key in ("menu:1", "close"):
        page.get_by_label(f"Select {key}", exact=True).check()
    expect(page.locator(".bulk output")).to_have_text("2 selected")
    page.locator("#bulk-pause").click()
    expect(page.locator("#ask-what")).to_contain_text("2")
    confirm(page, "Pause: 2")
    assert one(connection, paused) == "close menu:1"
    expect(page.locator("#schedule-rows .s-paused")).to_have_count(2)
    page.locator(".bulk [name=all]").check()
    page.get_by_role("button", name="Resume").click()
    confirm(page, "Resume: 2")
    assert one(connection, paused) is None
    page.get_by_role("button", name="Run now").click()
    confirm(page, "Run now: 4")
    assert made(connection) == 4
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)


@pytest.mark.slow
def test_a_bulk_pause_has_an_end_and_follows_the_filter(
    four_schedules: None, connection: Connection, browse: Visits
) -> None:
    page = browse("schedules?q=menu")
    page.locator(".bulk [name=all]").check()
    page.locator("[data-into=bulk-pause]").fill("2099-01-01T00:00")
    page.locator("#bulk-pause").click()
    confirm(page, "Pause: 3")
    paused = "select count(*) from sereno.schedules where paused_until = '2099-01-01T00:00Z'"
    assert one(connection, paused) == 3
    page.locator("[data-into=bulk-spread]").fill("30m")
    page.locator("#bulk-spread").click()
    confirm(page, "Spread: 3")
    assert one(connection, "select count(*) from sereno.schedules where rule @> '{\"spread\": 1800}'") == 3
    page.get_by_role("button", name="Delete").click()
    confirm(page, "Delete: 3")
    assert one(connection, "select string_agg(key, ' ') from sereno.schedules") == "close"


@pytest.mark.slow
def test_the_page_of_a_schedule_shows_its_runs(
    app: Sereno,
    put: Callable[..., None],
    connection: Connection,
    browse: Visits,
    inspect_page: InspectPage,
) -> None:
    put("close", args={"name": "n", "token": "s3cr3t"}, overlap="queue_one", tenant="a")
    job = insert_run(connection, "close", result={"found": 12, "new": 3, "pin": 4711, "note": "x"})
    skipped = "insert into sereno.fires (planned_at, schedule_id, fired_at, reason) "
    skipped += "select sereno.now(), id, sereno.now(), 'overlap' from sereno.schedules"
    connection.execute(skipped.encode())
    connection.execute("update sereno.schedules set declared_by = 'shop'")
    page = browse(schedule_path("close"), "viewer", zone="Asia/Tokyo")
    expect(page.locator("#schedule-coming tbody tr")).to_have_count(10)
    expect(page.locator("#schedule-coming tbody tr").first).to_contain_text("12:00:00")
    expect(page.locator("#schedule-punctual circle")).to_have_count(1)
    expect(page.locator("#schedule-punctual path.cut")).to_have_count(1)
    expect(page.locator("#schedule-history")).to_contain_text("overlap")
    expect(page.locator("#schedule-history tbody tr", has_text=str(job))).to_contain_text("found 12 · new 3")
    expect(page.locator("#schedule-history")).not_to_contain_text("pin")
    expect(page.locator(f"#schedule-history a[href='./jobs?job={job}']")).to_be_visible()
    expect(page.locator("#schedule-facts")).to_contain_text("Declared by the code of shop")
    expect(page.locator("#schedule-audit")).to_contain_text("maria")
    assert "s3cr3t" not in page.content()
    assert page.locator("button[data-do], [data-dialog]").count() == 0
    inspect_page(page, "schedule-runs")
    app.database.run(run_now("close"))
    expect(page.locator("#schedule-history tbody tr")).to_have_count(3, timeout=20_000)


def day_before_spring(now: datetime) -> datetime:
    """Return a time within the day before the clock of Riga goes from 03:00 to 04:00."""
    days = [(now + timedelta(days=number)).astimezone(RIGA) for number in range(1, 400)]
    return next(day for day, after in pairwise(days) if not day.dst() and after.dst())


@pytest.mark.slow
def test_a_change_of_the_clock_is_noted(put: Callable[..., None], connection: Connection, browse: Visits) -> None:
    starts_at = day_before_spring(one(connection, "select sereno.now()"))
    put("night", when={"kind": "daily", "at": "03:30", "tz": "Europe/Riga"}, starts_at=starts_at.isoformat())
    page = browse(schedule_path("night"))
    expect(page.locator("#schedule-coming .note").first).to_contain_text("does not exist")
    page.locator("[data-dialog=edit-dialog]").click()
    expect(page.locator("#edit-preview .note").first).to_contain_text("does not exist")


@pytest.mark.slow
@pytest.mark.quick
def test_a_rule_is_previewed_while_typing_and_saved(
    four_schedules: None, connection: Connection, browse: Visits, inspect_page: InspectPage
) -> None:
    page = browse(schedule_path("menu:1"))
    # A half-typed rule is invalid, and the browser logs the refused preview.
    browse.forgive("schedules/preview")
    page.locator("[data-dialog=edit-dialog]").click()
    shown = page.locator("#edit-preview")
    expect(shown.locator("li")).to_have_count(10)
    page.locator("[name='when.kind']").select_option("cron")
    page.locator("[name='when.expression']").fill("61 * * * *")
    expect(shown.locator(".says")).to_contain_text("61")
    expect(shown.locator(".says")).to_have_class("says bad")
    page.locator("[name='when.expression']").fill("30 9 * * MON-FRI")
    expect(shown.locator(".says")).to_contain_text("Monday")
    inspect_page(page, "schedule-edit")
    page.locator("[name=args]").fill('{"name": "other"}')
    page.locator("#edit .go").click()
    expect(page.locator("h1")).to_contain_text("09:30")
    found = connection.execute(
        "select rule, args, tenant, changed_by from sereno.schedules where key = 'menu:1'"
    ).fetchone()
    assert found is not None
    assert found[:3] == (
        {"kind": "cron", "expression": "30 9 * * MON-FRI", "tz": "Europe/Riga"},
        {"name": "other"},
        "a",
    )


@pytest.mark.slow
def test_saving_an_unchanged_form_changes_nothing(
    put: Callable[..., None], connection: Connection, browse: Visits
) -> None:
    different: dict[str, dict[str, Any]] = {
        "every": {"when": {"kind": "every", "interval": 90, "count_from": "clock", "phase": 30}, "tags": ["x", "y"]},
        "once": {"when": {"kind": "once", "at": "2099-01-01T00:00:00Z"}, "unique_key": "u", "priority": 2},
        "daily": {
            "missed": "all",
            "overlap": "allow",
            "missed_limit": 3,
            "max_lateness": 90,
            "max_fires": 9,
            "ends_at": "2099-01-01T00:00Z",
        },
    }
    for key, more in different.items():
        put(key, **more)
    before = connection.execute("select to_jsonb(s) from sereno.schedules s order by key").fetchall()
    page = browse("schedules")
    for key in different:
        goto(page, schedule_path(key))
        page.locator("[data-dialog=edit-dialog]").click()
        with page.expect_response(lambda answer: answer.request.method == "PUT") as answer:
            page.locator("#edit .go").click()
        assert answer.value.json()["what"] == "unchanged"
    assert connection.execute("select to_jsonb(s) from sereno.schedules s order by key").fetchall() == before


@pytest.mark.slow
@pytest.mark.quick
def test_a_schedule_is_paused_resumed_run_and_deleted(
    four_schedules: None, connection: Connection, browse: Visits
) -> None:
    page = browse(schedule_path("menu:1"))
    page.locator("[data-dialog=pause-dialog]").click()
    page.locator("#pause-note").fill("holidays")
    page.locator("#pause-dialog .go").click()
    expect(page.locator("h1")).to_contain_text("paused until it is resumed")
    expect(page.locator(".sub")).to_contain_text("holidays")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("h1")).to_contain_text("next in")
    page.get_by_role("button", name="Run now").click()
    confirm(page, "Run now")
    assert made(connection, "menu:1") == 1
    page.get_by_role("button", name="Delete").click()
    page.locator("#ask button[value=yes]").click()
    page.wait_for_url("**/schedules")
    assert keys(page) == ["close", "menu:2", "menu:3"]


@pytest.mark.slow
def test_a_backfill_is_previewed_before_it_runs(four_schedules: None, connection: Connection, browse: Visits) -> None:
    page = browse(schedule_path("menu:1"), "operator", zone="America/New_York")
    now: datetime = one(connection, "select sereno.now()")
    start = now - timedelta(days=4)
    page.locator("[data-dialog=backfill-dialog]").click()
    page.locator("#backfill-from").fill(f"{start:%Y-%m-%d}T00:00:00")
    page.locator("#backfill-to").fill(f"{start + timedelta(days=2):%Y-%m-%d}T12:00:00")
    expect(page.locator("#backfill-go")).to_be_disabled()
    page.get_by_role("button", name="Preview").click()
    # In the time zone of the schedule, whatever that of the browser is.
    expect(page.locator("#backfill .preview li")).to_have_count(3)
    expect(page.locator("#backfill .preview li").first).to_contain_text(f"{start:%Y-%m-%d} 12:00:00")
    assert made(connection) == 0
    page.locator("#backfill-go").click()
    expect(page.locator("#backfill-dialog")).to_be_hidden()
    assert made(connection, "menu:1") == 3
    expect(page.get_by_text("3 jobs created")).to_be_visible()


@pytest.mark.slow
def test_the_schedule_pages_are_translated(four_schedules: None, browse: Visits) -> None:
    page = browse("schedules", language="es")
    expect(page.locator("h1")).to_have_text("4 programaciones, y todo va bien.")
    goto(page, schedule_path("menu:1"))
    expect(page.locator("h1")).to_contain_text("Cada día a las 12:00, Europe/Riga; la próxima en")
