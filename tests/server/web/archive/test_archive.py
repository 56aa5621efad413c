"""The archive page: which rows are in tables, which are in files, and whether the files are verified."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx
import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from sereno.server.web.charts.day_squares import DaySquare, first_day, squares
from sereno.server.web.sizes import size
from tests.facts import advance, one, until
from tests.server.api.archive.archived import archive, export, fill, move, old_delivery
from tests.server.api.conftest import Ask, Served
from tests.server.web.html_reader import Read
from tests.server.web.visit import DARK_PHONE, InspectPage, Visits


def _fill(connection: psycopg.Connection, *ago: int) -> list[date]:
    """Insert jobs that ended this many days ago, and return the days."""
    filled = [fill(connection, days, first=1 + 30 * place) for place, days in enumerate(ago)]
    # Before `analyze`: inserted rows that are reported later are counted a second time.
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("analyze")
    return filled


def _go_to_noon(connection: psycopg.Connection) -> None:
    """Go to noon of a day before the partitions of the schema: only filled days exist, and midnight is far."""
    now: datetime = one(connection, "select sereno.now()").astimezone(UTC)
    noon = now.replace(hour=12, minute=0) - timedelta(days=10)
    advance(connection, (noon - now).total_seconds())


class TestWithoutArchive:
    """No archive is configured."""

    @pytest.mark.slow
    def test_stored_days_and_their_retention_are_shown(self, read: Read, connection: psycopg.Connection) -> None:
        _go_to_noon(connection)
        _, old = _fill(connection, 0, 5)
        text = read("archive").text
        assert "2 days are stored: about 60 jobs." in text
        assert f"retained until {old + timedelta(days=31)}" in text
        assert "Expired rows are deleted." in text
        assert read("archive", whose="ann").status_code == 403

    @pytest.mark.slow
    def test_days_past_their_retention_are_reported(self, read: Read, connection: psycopg.Connection) -> None:
        _fill(connection, 0, 40, 400)
        text = read("archive").text
        assert "2 days are past their retention." in text
        assert "One earlier day is stored, too." in text

    @pytest.mark.slow
    def test_the_page_is_accessible(
        self, browse: Visits, inspect_page: InspectPage, connection: psycopg.Connection
    ) -> None:
        _fill(connection, 0, 1, 9)
        inspect_page(browse("archive"), "archive-off")
        inspect_page(browse("archive", language="es"), "archive-off", DARK_PHONE)


class TestWithArchive:
    """The archive is a directory."""

    @pytest.fixture
    def app(self, database_url: str, tmp_path: Path) -> Iterator[Sereno]:
        made = Sereno(database_url, archive_url=f"file://{tmp_path / 'archive'}", keep_deliveries_days=30)
        yield made
        made.close()

    @pytest.mark.slow
    def test_the_headline_reports_the_state_of_the_archive(
        self, app: Sereno, read: Read, ask: Ask, served: Served, connection: psycopg.Connection
    ) -> None:
        assert "The archive is on. No rows are old enough yet." in read("archive").text
        day = fill(connection, 31)
        move(app)
        # The result of a second ago is cached.
        advance(connection, 0)
        _changed(ask, served, "One batch waits for its files; all others are verified.")
        assert export(app) == []
        text = _changed(
            ask, served, "Everything older than 30 days is archived and verified; the next batch may be dropped on"
        )
        assert f"{day}: archived: 30 rows" in text.replace("<title>", "")
        assert 'class="b-archived"' in text

    @pytest.mark.slow
    def test_the_page_is_accessible(
        self, app: Sereno, browse: Visits, inspect_page: InspectPage, connection: psycopg.Connection, tmp_path: Path
    ) -> None:
        _fill(connection, 0, 1, 9, 33, 34, 40)
        archive(app)
        fill(connection, 45, first=500)
        move(app)
        (tmp_path / "archive").rename(tmp_path / "away")
        (tmp_path / "archive").write_text("in the way")
        assert export(app)
        page = browse("archive")
        expect(page.locator("h1")).to_have_text("One file could not be verified: its rows are retained.")
        expect(page.locator("svg.squares .b-archived")).to_have_count(3)
        expect(page.locator("svg.squares .b-failed")).to_have_count(1)
        inspect_page(page, "archive")
        page.locator("#archive-batches tbody tr", has_text="verified").first.locator("a").first.click()
        expect(page.locator(".drawer .files .object").first).to_contain_text("jobs/")
        expect(page.locator(".drawer")).to_contain_text(".parquet.json")
        inspect_page(page, "archive-batch")
        inspect_page(browse("archive?batch=1", language="pt"), "archive-batch", DARK_PHONE)
        inspect_page(browse("archive", language="es"), "archive", DARK_PHONE)

    @pytest.mark.slow
    def test_an_admin_runs_the_archive_now(self, browse: Visits, connection: psycopg.Connection) -> None:
        page = browse("archive")
        page.get_by_role("button", name="Archive now").click()
        page.locator("#ask [value=yes]").click()
        expect(page.locator("#toast p").first).to_be_visible()
        assert one(connection, "select count(*) from sereno.jobs where starts_with(task, 'sereno.archive_')") == 2
        expect(browse("archive", "operator").get_by_role("button", name="Archive now")).to_have_count(0)

    @pytest.mark.slow
    def test_the_list_is_filtered_by_the_query(self, app: Sereno, read: Read, connection: psycopg.Connection) -> None:
        fill(connection, 40)
        archive(app)
        batch = one(connection, "select id from sereno.archive_batches")
        assert f"batch={batch}" in read("archive?kind=jobs&state=verified").text
        assert "No batch matches." in read("archive?state=dropped").text
        assert "There is no batch 999." in read("archive?batch=999").text
        hostile = read("archive?batch=%3Cb%3Ex&kind=%3Cb%3Ex&state=%3Cb%3Ex&before=%3Cb%3Ex")
        assert hostile.status_code == 200
        assert "<b>" not in hostile.text.replace('class="brand"', "").replace("sereno<b>.</b>", "")

    @pytest.mark.slow
    def test_a_table_with_a_hostile_name_is_escaped(
        self, app: Sereno, read: Read, connection: psycopg.Connection
    ) -> None:
        connection.execute(
            'create table public."<i>x</i>" (id int primary key, at timestamptz);'
            "insert into public.\"<i>x</i>\" values (1, now() - interval '1 year')"
        )
        app.archive.table('public."<i>x</i>"', time="at", older_than="30d")
        archive(app)
        text = read("archive?batch=1").text
        assert "&lt;i&gt;x&lt;/i&gt;" in text
        assert "<i>x</i>" not in text

    @pytest.mark.slow
    def test_archived_rows_are_shown_with_their_location(
        self,
        app: Sereno,
        read: Read,
        browse: Visits,
        inspect_page: InspectPage,
        connection: psycopg.Connection,
    ) -> None:
        fill(connection, 40)
        number = old_delivery(connection)
        archive(app)
        held = read("jobs?job=7").text
        assert "Job 7 is in the archive." in held
        assert "sereno archive restore job 7" in held
        sent = read(f"deliveries?delivery={number}").text
        assert f"Delivery {number} is in the archive." in sent
        assert f"sereno archive restore delivery {number}" in sent
        advance(connection, 8 * 86400)
        assert export(app) == []
        page = browse("jobs?job=8")
        expect(page.locator(".drawer")).to_contain_text("Job 8 is not here. It may be in the archive.")
        inspect_page(page, "job-archived")
        inspect_page(browse("jobs?job=8", language="pt"), "job-archived", DARK_PHONE)
        for path in ("jobs?job=9", f"deliveries?delivery={number}"):
            theirs = read(path, whose="ann").text
            assert "archive restore" not in theirs
            assert "or you have no access to it." in theirs


def _changed(ask: Ask, served: Served, words: str) -> str:
    """Return the page as after a change, without the cache."""
    headers = {"Authorization": ask("viewer").headers["Authorization"], "X-Sereno-Live": "changed"}

    def changed() -> str:
        text = httpx.get(f"{served.url}/archive", headers=headers, timeout=30, trust_env=False).text
        return text if words in text else ""

    return until(changed)


def test_the_calendar_has_a_square_for_each_day_until_today() -> None:
    for offset in range(7):
        today = date(2026, 11, 9) + timedelta(days=offset)
        drawn = squares({today: DaySquare(5, False, "<b>")}, today, 26, "x", "-", lambda day, form: f"{day:{form}}")
        assert drawn.count("<rect") == 25 * 7 + offset + 1
        assert "<b>" not in drawn
        assert first_day(today, 26).weekday() == 0


def test_the_state_of_a_day_is_visible_without_colours() -> None:
    today = date(2026, 11, 9)
    days = {
        today - timedelta(days=1): DaySquare(0, False, "a", "archived"),
        today - timedelta(days=2): DaySquare(0, False, "b", "waiting"),
        today - timedelta(days=3): DaySquare(0, False, "c", "failed"),
        today: DaySquare(9, False, "d"),
    }
    drawn = squares(days, today, 2, "x", "-", lambda day, form: f"{day:{form}}")
    assert drawn.count('class="mark"') == 3
    assert [each for each in ("b-archived", "b-waiting", "b-failed", "h9") if f'class="{each}"' not in drawn] == []


def test_sizes_are_formatted() -> None:
    formatted = {0: "0 B", 1023: "1023 B", 2048: "2 kB", 5 * 1024**2: "5.0 MB", 3 * 1024**5: "3072.0 TB"}
    assert {count: size(count).replace("\u202f", " ") for count in formatted} == formatted | {3 * 1024**5: "3072 TB"}
