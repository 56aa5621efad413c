"""An external scheduler triggers the search; two at once cause no duplicates."""

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from reminders.app import app
from reminders.stand_ins import StandIns
from reminders.tests.clients import ApiClient, environment, sereno, sql

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

Remind = Callable[..., int]

TRIGGER = {"task": "reminders.find", "unique_key": "reminders.find"}


def find_jobs(kit: Kit) -> int:
    return len(kit.jobs("reminders.find"))


def test_two_schedulers_at_once_make_one_search(kit: Kit, stand_ins: StandIns, api: ApiClient, remind: Remind) -> None:
    """By HTTP and from SQL, as Cloud Scheduler and pg_cron do; the schedule of sereno is paused."""
    app.schedules.pause("reminders.find", note="triggered by Cloud Scheduler")
    for _ in range(5):
        remind()
    kit.travel("5m")
    kit.drain()
    assert find_jobs(kit) == 0
    from_sql = "select sereno.enqueue('reminders.find', queue => 'reminders', unique_key => 'reminders.find')"
    with ThreadPoolExecutor(4) as pool:
        by_http = [pool.submit(api, "POST", "/sereno/api/v1/jobs", TRIGGER) for _ in range(2)]
        by_sql = [pool.submit(sql, from_sql) for _ in range(2)]
    assert {each.result()[0] for each in by_http} == {201}
    assert {each.result()[1]["id"] for each in by_http} == {each.result()[0][0] for each in by_sql}
    assert find_jobs(kit) == 1
    kit.drain()
    assert len(stand_ins.mails.mails) == 5


def test_the_trigger_requires_the_role_operator(kit: Kit, api: ApiClient) -> None:
    assert api("POST", "/sereno/api/v1/jobs", TRIGGER, role="no token")[0] == 401
    assert api("POST", "/sereno/api/v1/jobs", TRIGGER, role="viewer")[0] == 403
    assert find_jobs(kit) == 0


def test_two_concurrent_searches_send_each_reminder_once(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """Two jobs without a unique key, in two worker processes."""
    for _ in range(40):
        remind()
    for _ in range(2):
        app.schedules.run("reminders.find")
    with (
        kit.crash_worker("reminders.app:app") as one,
        kit.crash_worker("reminders.app:app") as other,
    ):
        one.until(lambda: len(stand_ins.mails.mails) >= 40)
        one.until(lambda: len(kit.jobs("reminders.find", state="succeeded")) >= 2)
        one.until(lambda: not [delivery for delivery in kit.deliveries() if delivery.state != "sent"])
        assert one.stop() == other.stop() == 0
    assert len(stand_ins.mails.mails) == len(kit.deliveries()) == 40


def test_two_cron_jobs_that_tick_fire_an_instant_once(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """`sereno schedule tick` in two crontabs, with SERENO_SCHEDULER=false for the workers."""
    remind()
    kit.travel("5m")
    ticks = [subprocess.Popen(sereno("schedule", "tick"), env=environment(), stdout=subprocess.PIPE) for _ in range(2)]
    for tick in ticks:
        tick.communicate(timeout=60)
    assert [tick.returncode for tick in ticks] == [0, 0]
    assert find_jobs(kit) == 1
    kit.drain()
    assert len(stand_ins.mails.mails) == 1
