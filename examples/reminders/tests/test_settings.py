"""The variables of the original design: their defaults, their values, and what is refused."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from reminders import app as program
from reminders import settings
from reminders.app import app, status
from reminders.stand_ins import StandIns
from reminders.tests.clients import environment, sql

from sereno import Recipient
from sereno.errors import ConfigurationError
from sereno.testing.kit import Kit

Remind = Callable[..., int]
SEARCH = "select state, rule ->> 'expression', rule ->> 'tz' from sereno.schedules_v1 where key = 'reminders.find'"


def test_the_defaults_are_those_of_the_original_design() -> None:
    assert settings.CRON_ENABLED
    assert settings.WORKER_ENABLED
    assert settings.CRON_EXPRESSION == "*/5 * * * *"
    assert settings.MAX_ATTEMPTS == 5
    assert settings.DELAYS == (30, 60, 120, 240)
    assert settings.DISPATCH_QUEUE == app.settings.notifications_queue == "notifications.dispatch"
    assert settings.DEAD_LETTER_QUEUE == "notifications.dead-letter"
    assert settings.TIMEZONE == "UTC"


def test_without_backoff_every_retry_waits_as_long() -> None:
    assert settings.delays(5, 30, backoff=False) == (30, 30, 30, 30)
    assert settings.delays(1, 30, backoff=True) == ()


def test_dates_in_the_text_are_in_the_time_zone_of_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "ZONE", ZoneInfo("America/Santiago"))
    due = program.Due("inspect the lift", "L-1", datetime(2026, 6, 1, 2, 30, tzinfo=UTC))
    assert program.content(due, Recipient(key="ana")).body == "L-1: due on 31.05.2026 at 22:30 -04"


def test_the_queue_is_in_postgresql_or_carried(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    for driver, expected in [
        ("pgboss", None),
        ("postgres", None),
        ("", None),
        ("jetstream://a:4222,b:4222", {"notifications.dispatch": "jetstream://a:4222,b:4222"}),
    ]:
        with subtests.test(driver=driver):
            monkeypatch.setenv("NOTIFICATION_QUEUE_DRIVER", driver)
            assert settings.carriers() == expected


def test_a_wrong_value_is_refused_with_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for name, value, read in [
        ("NOTIFICATION_QUEUE_DRIVER", "bullmq", settings.carriers),
        ("NOTIFICATION_CRON_ENABLED", "maybe", lambda: settings.flag("NOTIFICATION_CRON_ENABLED", "true")),
        ("NOTIFICATION_MAX_ATTEMPTS", "0", lambda: settings.count("NOTIFICATION_MAX_ATTEMPTS", "5")),
        ("NOTIFICATION_MAX_ATTEMPTS", "five", lambda: settings.count("NOTIFICATION_MAX_ATTEMPTS", "5")),
    ]:
        with subtests.test(name=name, value=value):
            monkeypatch.setenv(name, value)
            with pytest.raises(ConfigurationError, match=f"{name} is .*{value}"):
                read()


@pytest.mark.slow
def test_without_a_configuration_reminders_are_told_in_the_application_alone(
    kit: Kit, stand_ins: StandIns, remind: Remind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFICATION_ACTIVE_CHANNELS")
    numbers = [remind(channel=channel) for channel in ("email", "sms", "in_app", "push")]
    kit.travel("5m")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: [status(number) for number in numbers] == ["SENT"] * 4)
    assert {(each.channel, each.state) for each in kit.deliveries()} == {("in_app", "delivered")}
    assert not stand_ins.mails.mails
    assert not stand_ins.pushes.log


@pytest.mark.slow
def test_a_channel_that_does_not_exist_cannot_be_activated(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFICATION_ACTIVE_CHANNELS", "IN_APP,FAX")
    command = [sys.executable, "-m", "reminders"]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "NOTIFICATION_ACTIVE_CHANNELS: fax is none of email, in_app, push, sms, telegram, whatsapp" in ended.stderr


@pytest.mark.slow
def test_the_cron_is_an_expression_and_can_be_turned_off(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off: the schedule is disabled. On again: it runs by the expression, in the time zone of the application."""
    monkeypatch.setenv("NOTIFICATION_CRON_ENABLED", "false")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: sql(SEARCH)[0][0] == "disabled")
    monkeypatch.setenv("NOTIFICATION_CRON_ENABLED", "true")
    monkeypatch.setenv("NOTIFICATION_CRON_EXPRESSION", "30 6 * * MON-FRI")
    monkeypatch.setenv("APP_TIMEZONE", "America/Santiago")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: sql(SEARCH) == [("enabled", "30 6 * * MON-FRI", "America/Santiago")])


@pytest.mark.slow
def test_one_process_is_the_whole_system_or_the_api_alone(
    kit: Kit, remind: Remind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NOTIFICATION_WORKER_ENABLED=false the process only serves, and a worker beside it sends."""
    monkeypatch.setenv("NOTIFICATION_CRON_EXPRESSION", "* * * * * *")
    monkeypatch.setenv("NOTIFICATION_WORKER_ENABLED", "false")
    number = remind(channel="in_app")
    with api_process():
        assert sql("select count(*) from sereno.sessions_v1")[0][0] == 0
        with kit.crash_worker("reminders.app:app") as worker:
            worker.until(lambda: status(number) == "SENT")
            assert worker.stop() == 0
    monkeypatch.setenv("NOTIFICATION_WORKER_ENABLED", "true")
    number = remind(channel="in_app")
    with api_process():
        kit.until(lambda: status(number) == "SENT")


@contextmanager
def api_process() -> Iterator[None]:
    """`python -m reminders`, which has started; it must stop cleanly."""
    given = environment() | {"REMINDERS_PORT": "0"}
    with subprocess.Popen([sys.executable, "-m", "reminders"], env=given, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any(re.search(r"Uvicorn running on http://127\.0\.0\.1:\d+", line) for line in process.stderr)
            yield
            process.terminate()
            rest = process.communicate(timeout=60)[1]
            assert "Traceback" not in rest, rest
        finally:
            process.kill()
