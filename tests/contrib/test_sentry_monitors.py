"""The rules of schedules as Sentry writes them, and the names of monitors."""

from datetime import UTC, datetime

import pytest

from sereno import Cron, Daily, Every, Once
from sereno.contrib.sentry_monitors import LONGEST_SLUG, monitor_config, monitor_slug
from sereno.schedules.rules.when import When, checked


def test_rules_are_translated_where_sentry_can_follow_them(subtests: pytest.Subtests) -> None:
    rules: list[tuple[When, tuple[str, object, object] | None]] = [
        (Every("5m"), ("interval", 5, "minute")),
        (Every("2h"), ("interval", 2, "hour")),
        (Every("7d"), ("interval", 1, "week")),
        (Every("90m"), ("interval", 90, "minute")),
        (Every("30s"), None),
        (Every("90s"), None),
        (Cron("30 9 * * MON-FRI"), ("crontab", "30 9 * * MON-FRI", None)),
        (Cron("@daily"), ("crontab", "0 0 * * *", None)),
        (Cron("15 30 9 * * *"), None),
        (Daily("03:05"), ("crontab", "5 3 * * *", None)),
        (Daily("03:05:30"), ("crontab", "5 3 * * *", None)),
        (Once(datetime(2027, 1, 1, tzinfo=UTC)), None),
    ]
    for rule, expected in rules:
        with subtests.test(rule=rule):
            config = monitor_config(checked(rule), 90.0)
            if expected is None:
                assert config is None
                continue
            assert config is not None
            schedule = config["schedule"]
            assert (schedule["type"], schedule["value"], schedule.get("unit")) == expected
            assert config["max_runtime"] == 2


def test_zone_and_spread_are_kept() -> None:
    config = monitor_config(checked(Daily("03:00", tz="Europe/Riga", spread="10m")), None)
    assert config == {
        "schedule": {"type": "crontab", "value": "0 3 * * *"},
        "timezone": "Europe/Riga",
        "checkin_margin": 15,
    }


def test_names_of_monitors_are_valid_and_differ() -> None:
    names: set[str] = set()
    for key in ("menu:refresh", "Menu Refresh", "menu.refresh", "x" * 80, "x" * 81, "ночь", "утро", "report_1"):
        name = monitor_slug(key, names)
        assert name not in names
        assert 0 < len(name) <= LONGEST_SLUG
        assert name.isascii()
        names.add(name)
    assert {"menu-refresh", "report_1"} <= names
