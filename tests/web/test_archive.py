"""The days of the history on a page: what is kept, until when, and no promise that is not kept."""

from collections.abc import Callable
from datetime import date, timedelta

import httpx
import psycopg
from playwright.sync_api import Page

from sereno.web.day_squares import Day, first_day, squares
from sereno.web.sizes import size
from tests.api.conftest import Ask, Served
from tests.facts import one
from tests.web.visit import Visits

LookAt = Callable[[Page, str], None]


def _fill(connection: psycopg.Connection, *ago: int) -> date:
    today: date = one(connection, "select (sereno.now() at time zone 'UTC')::date")
    for days in ago:
        connection.execute("select sereno.make_history_partition(%s)", [today - timedelta(days=days)])
        connection.execute(
            "insert into sereno.history (id, state, task, queue, attempt, failures, crashes, snoozes, releases, "
            "priority, args, run_at, created_at, finished_at) "
            "select n, 'succeeded', 'work', 'default', 1, 0, 0, 0, 0, 5, '{}', %(at)s, %(at)s, %(at)s "
            "from generate_series(1, 30) as n",
            {"at": f"{today - timedelta(days=days)} 00:00:00+00"},
        )
    connection.execute("analyze")
    return today


def _get(ask: Ask, served: Served, tenant: str | None = None) -> httpx.Response:
    headers = {"Authorization": ask("viewer", tenant).headers["Authorization"]}
    return httpx.get(f"{served.url}/archive", headers=headers, trust_env=False)


def test_what_is_kept_and_until_when(ask: Ask, served: Served, connection: psycopg.Connection) -> None:
    today = _fill(connection, 0, 5)
    text = _get(ask, served).text
    assert "2 days are kept: about 60 jobs." in text
    assert f"kept until {today + timedelta(days=26)}" in text
    assert "there is no archive yet" in text
    assert _get(ask, served, "ann").status_code == 403


def test_a_day_that_should_have_left_is_told(ask: Ask, served: Served, connection: psycopg.Connection) -> None:
    _fill(connection, 0, 40, 300)
    text = _get(ask, served).text
    assert "2 days should have left, and are still here." in text
    assert "1 days before these are kept too." in text


def test_the_archive_in_a_browser(browse: Visits, look_at: LookAt, connection: psycopg.Connection) -> None:
    _fill(connection, 0, 1, 9)
    look_at(browse("archive"), "archive")
    look_at(browse("archive", dark=True, width=375, language="es"), "archive")


def test_nothing_is_kept_yet(ask: Ask, served: Served) -> None:
    assert "No finished job is kept yet." in _get(ask, served).text


def test_a_square_for_each_day_until_today() -> None:
    for offset in range(7):
        today = date(2026, 11, 9) + timedelta(days=offset)
        drawn = squares({today: Day(5, False, "<b>")}, today, 26, "x", "-", lambda day, form: f"{day:{form}}")
        assert drawn.count("<rect") == 25 * 7 + offset + 1
        assert "<b>" not in drawn
        assert first_day(today, 26).weekday() == 0


def test_bytes_as_people_say_them() -> None:
    said = {0: "0 B", 1023: "1023 B", 2048: "2 kB", 5 * 1024**2: "5.0 MB", 3 * 1024**5: "3072.0 TB"}
    assert {count: size(count).replace("\u202f", " ") for count in said} == said | {3 * 1024**5: "3072 TB"}
