"""Invalid options of a job are refused before anything is written."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from sereno import InvalidArguments
from sereno.jobs.job import JobOptions, NewJob

INVALID_OPTIONS: tuple[dict[str, Any], ...] = (
    {"priority": 10},
    {"priority": -1},
    {"priority": True},
    {"priority": 1.0},
    {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - the point
    {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - the point
    {"run_at": "2030-01-01"},
    {"run_at": datetime(1, 1, 1, tzinfo=UTC)},
    {"run_at": datetime.max.replace(tzinfo=UTC)},
    {"expires_at": datetime.max.replace(tzinfo=UTC)},
    {"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1},
    {"delay": -1},
    {"delay": "soon"},
    {"delay": float("nan")},
    {"delay": "99999999999d"},
    {"queue": ""},
    {"queue": "q" * 501},
    {"tenant": "a\x00b"},
    {"tenant": 7},
    {"unique_key": "\ud800"},
    {"unique_key": ""},
    {"trace": "t" * 501},
    {"tags": "red"},
    {"tags": ["a", 7]},
    {"tags": ["a\x00"]},
    {"on_conflict": "raise"},
    {"unique_for": "1h"},
    {"unique_key": "k", "on_conflict": "unknown"},
    {"unique_key": "k", "unique_for": "a while"},
    {"unique_key": "k", "unique_for": -1},
    {"unique_key": "k", "unique_for": "99999999999d"},
)


def test_an_invalid_option_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for wrong in INVALID_OPTIONS:
        refused = pytest.raises(InvalidArguments, match=next(reversed(wrong)).removesuffix("s"))
        with subtests.test(wrong=wrong), refused:
            JobOptions(**wrong).checked()


def test_valid_options_are_not_changed(subtests: pytest.Subtests) -> None:
    table: list[dict[str, Any]] = [
        {},
        {"priority": 0, "queue": "q", "tenant": "é" * 500, "trace": "t", "tags": ("a", "b")},
        {"run_at": datetime(1900, 1, 2, tzinfo=UTC), "expires_at": datetime(9999, 12, 30, tzinfo=UTC)},
        {"delay": timedelta(days=1)},
        {"unique_key": "k", "unique_for": "forever", "on_conflict": "raise"},
        {"unique_key": "k", "unique_for": "1h", "on_conflict": "replace"},
    ]
    for right in table:
        with subtests.test(right=right):
            options = JobOptions(**right)
            assert options.checked() is options


def test_a_job_row_contains_only_the_given_options() -> None:
    row = NewJob("work", b'{"n":1}', JobOptions(queue="q", priority=3)).as_row()
    assert msgspec.json.encode(row) == b'{"task":"work","args":{"n":1},"queue":"q","priority":3}'


def test_a_unique_period_differs_from_forever() -> None:
    period = NewJob("work", b"{}", JobOptions(unique_key="k", unique_for="1h")).as_row()
    forever = NewJob("work", b"{}", JobOptions(unique_key="k", unique_for="forever")).as_row()
    live = NewJob("work", b"{}", JobOptions(unique_key="k")).as_row()
    assert (period["unique_for"], forever["unique_forever"]) == (3600.0, True)
    assert "unique_for" not in live | forever
    assert "unique_forever" not in live | period
