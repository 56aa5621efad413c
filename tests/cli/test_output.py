"""Formats of values in tables and pipes."""

from datetime import UTC, datetime

import pytest

from sereno.bounded_count import BoundedCount
from sereno.cli.output import _plain, human, human_seconds
from sereno.monitoring.settings import masked

VALUES = [
    (None, "", ""),
    (True, "yes", "yes"),
    (1234567, "1,234,567", "1234567"),
    (BoundedCount(1234), "1,234", "1234"),
    (BoundedCount(10_000, exact=False), ">10,000", ">10000"),
    (BoundedCount(37, exact=False), "≥37", ">37"),
    ({"default": 3}, "default=3", "default=3"),
    (["a", "b"], "a b", "a,b"),
    ("two\nlines\tand a tab", "two lines and a tab", "two lines and a tab"),
]


def test_values_are_formatted_for_tables_and_pipes(subtests: pytest.Subtests) -> None:
    for value, in_table, in_pipe in VALUES:
        with subtests.test(value=value):
            assert human(value) == in_table
            assert _plain(value) == in_pipe


def test_times_are_local_in_tables_and_utc_in_pipes() -> None:
    moment = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert human(moment) == f"{moment.astimezone():%Y-%m-%d %H:%M}"
    assert _plain(moment) == "2020-01-02T03:04:05Z"
    assert len(human(datetime.now(UTC))) == len("03:04:05")


def test_durations_are_formatted() -> None:
    assert [human_seconds(value) for value in (None, 0.25, 75.0, -3.0)] == ["", "250 ms", "1 m 15 s", "-3 s"]


def test_passwords_are_masked_and_the_rest_is_not(subtests: pytest.Subtests) -> None:
    for address in [
        "postgresql://eve:hunter2@db/x",
        "postgresql://eve@db/x?password=hunter2&a=b",
        "host=db password='hunter2 x' user=eve",
    ]:
        with subtests.test(address=address):
            shown = masked("database_url", address)
            assert "hunter2" not in shown
            assert "eve" in shown
            assert "db" in shown
