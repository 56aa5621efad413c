"""The generated pages of the reference are those that the code would generate now."""

import re

import psycopg
import pytest

from tools import api_reference, cli_reference, settings_reference, sql_reference, telemetry_reference

STALE = "the code has changed: run `make reference`"


def test_the_reference_of_the_api_is_up_to_date() -> None:
    assert api_reference.PAGE.read_text() == api_reference.reference(), STALE


def test_the_reference_of_the_commands_is_up_to_date() -> None:
    assert cli_reference.PAGE.read_text() == cli_reference.reference(), STALE


def test_the_reference_of_the_settings_is_up_to_date() -> None:
    assert settings_reference.PAGE.read_text() == settings_reference.reference(), STALE


def test_the_reference_of_the_metrics_is_up_to_date() -> None:
    assert telemetry_reference.METRICS.read_text() == telemetry_reference.metrics(), STALE


@pytest.mark.slow
def test_the_reference_of_the_events_is_up_to_date() -> None:
    assert len(telemetry_reference.emitted_events()) > 80
    assert telemetry_reference.EVENTS.read_text() == telemetry_reference.events(), STALE


def test_the_reference_of_the_sql_functions_is_up_to_date(connection: psycopg.Connection) -> None:
    assert sql_reference.PAGE.read_text() == sql_reference.reference(connection), STALE


def test_sql_functions_on_the_hand_written_page_have_comments(connection: psycopg.Connection) -> None:
    """Every function with a comment is explained in sql.md, and every explained one has a comment."""
    page = (sql_reference.PAGE.parent / "sql.md").read_text()
    commented = sql_reference.public_functions(connection)
    assert len(commented) > 10
    assert [name for name in commented if f"`sereno.{name}(" not in page and f"sereno.{name}()" not in page] == []


def test_the_reference_of_the_sql_views_is_up_to_date(connection: psycopg.Connection) -> None:
    page = sql_reference.VIEWS_PAGE.read_text()
    assert page == sql_reference.views_reference(connection), STALE
    assert page.count("\n## `sereno.") == 10
    assert re.findall(r"\|  \||^\n\n\n", page) == [], "a view or a column has no comment"
