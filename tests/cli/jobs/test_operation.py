"""`sereno operation …`, and bulk commands with `--background`."""

import asyncio
import json
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.bulk import operations as bulk
from sereno.jobs.filters import JobFilter
from tests.cli.conftest import Command, Process
from tests.cli.notifications.test_notifications import NotifiedRecipients, _id, notified, shop
from tests.cli.schedules.schedule_steps import add
from tests.facts import one, state

__all__ = ["notified", "shop"]


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task(queue="elsewhere")
    def work(number: int) -> None: ...

    return work


def test_a_background_operation_is_created(sereno: Command, work: Any, connection: psycopg.Connection) -> None:
    ids = [work.enqueue(number).id for number in range(3)]
    refused = sereno("job", "cancel", "--task", "work", "--background")
    assert refused.exit_code != 0
    assert one(connection, "select count(*) from sereno.bulk_operations") == 0
    made = sereno("job", "cancel", "--task", "work", "--background", "--yes", "--rate", "50/s", "--reason", "enough")
    assert (made.exit_code, made.stdout.strip()) == (0, "1")
    assert "sereno operation show 1 --follow" in made.stderr
    assert "It waits for a worker" in made.stderr
    assert [state(connection, each) for each in ids] == ["ready"] * 3
    listed = json.loads(sereno("operation", "list", "-o", "json").stdout)["items"]
    assert [(each["id"], each["action"], each["rate"], each["total"]) for each in listed] == [(1, "job.cancel", 50, 3)]
    assert "job.cancel" in sereno("operation", "list").stdout
    assert json.loads(sereno("operation", "list", "--tenant", "unknown", "-o", "json").stdout)["items"] == []


def test_every_bulk_command_of_jobs_can_run_in_the_background(sereno: Command, work: Any) -> None:
    job = work.enqueue(1).id
    for verb in ("retry", "cancel", "delete"):
        made = json.loads(sereno("job", verb, job, "--background", "-o", "json").stdout)
        assert (made["action"], made["state"], made["wanted"]["ids"]) == (f"job.{verb}", "waiting", [job])
    dry = sereno("job", "cancel", job, "--background", "--dry-run")
    assert dry.stdout.startswith("Would cancel 1 job")
    assert sereno("job", "cancel", job, "--rate", "5/s").exit_code == 2
    empty = sereno("job", "cancel", "--task", "unknown", "--background", "--yes", "--fail-empty")
    assert empty.exit_code == 7


def test_an_operation_is_shown_and_stopped(sereno: Command, work: Any) -> None:
    job = work.enqueue(1).id
    sereno("job", "cancel", job, "--background")
    shown = sereno("operation", "show", 1)
    assert shown.exit_code == 0
    assert "[" + "·" * 30 + "]   0%  waiting: 0 of 1" in shown.stdout
    assert "waits for      a worker" in shown.stdout
    stopped = sereno("operation", "stop", 1)
    assert stopped.stderr == "Operation 1 is stopped: 0 of 1.\n"
    assert json.loads(sereno("operation", "show", 1, "-o", "json").stdout)["state"] == "stopped"
    again = sereno("operation", "stop", 1)
    assert again.exit_code != 0
    assert "operation 1 has ended already: it is stopped" in again.stderr
    for verb in ("show", "stop"):
        missing = sereno("operation", verb, 7)
        assert missing.exit_code != 0
        assert "no operation 7" in missing.stderr


@pytest.mark.slow
async def test_follow_shows_progress_until_the_end(app: Sereno, process: Process, work: Any) -> None:
    for number in range(3):
        await work.aenqueue(number)
    made = await app.database.arun(bulk.begin("job.cancel", JobFilter(task="work"), yes=True))
    following = asyncio.create_task(asyncio.to_thread(process, "operation", "show", made.id, "--follow"))
    async with app.working({"default": 1}):
        followed = await following
    assert followed.returncode == 0
    assert "100%  done: 3" in followed.stdout


def test_following_a_failed_operation_exits_with_1(sereno: Command, work: Any, connection: psycopg.Connection) -> None:
    sereno("job", "cancel", work.enqueue(1).id, "--background")
    connection.execute("update sereno.bulk_operations set state = 'failed', error = 'the moon is full'")
    shown = sereno("operation", "show", 1, "--follow")
    assert shown.exit_code == 1
    assert "the moon is full" in shown.stdout


@pytest.mark.slow
def test_schedules_are_changed_in_the_background(sereno: Command, app: Sereno, connection: psycopg.Connection) -> None:
    for key in ("a1", "a2", "b1"):
        add(sereno, key, "--every", "1h")
    refused = sereno("schedule", "pause", "a*", "--background")
    assert refused.exit_code == 8
    dry = sereno("schedule", "pause", "a*", "--background", "--dry-run")
    assert dry.stdout.startswith("Would pause 2 schedules")
    assert sereno("schedule", "pause", "a*", "--yes", "--rate", "5/s").exit_code == 2
    made = sereno("schedule", "pause", "a*", "--background", "--yes", "--rate", "50/s", "--note", "closed")
    assert (made.exit_code, made.stdout.strip()) == (0, "1")
    for verb, words in (("resume", ()), ("disable", ()), ("delete", ()), ("spread", ("--over", "20m"))):
        answer = json.loads(sereno("schedule", verb, "a1", *words, "--background", "-o", "json").stdout)
        assert (answer["action"], answer["wanted"]["keys"]) == (f"schedule.{verb}", ["a1"])
    assert sereno("schedule", "delete", "unknown", "--background").exit_code == 7
    assert sereno("schedule", "delete", "x*", "--background", "--yes", "--fail-empty").exit_code == 7
    shown = sereno("operation", "show", 1).stdout
    assert "waiting: 0 of 2" in shown
    assert "schedules      " in shown
    assert "reason         closed" in shown
    assert "options        " in sereno("operation", "show", 5).stdout
    assert one(connection, "select count(*) from sereno.schedules where state = 'enabled'") == 3


def test_deliveries_are_requeued_in_the_background(
    sereno: Command, notified: NotifiedRecipients, connection: psycopg.Connection
) -> None:
    """The command needs no application, because the worker has one."""
    words = ("delivery", "requeue", "--channel", "pager", "--background")
    assert "Would requeue 3 deliveries." in sereno(*words, "--dry-run").stdout
    assert sereno(*words).exit_code == 8
    assert one(connection, "select count(*) from sereno.bulk_operations") == 0
    made = json.loads(sereno(*words, "--yes", "--rate", "50/s", "-o", "json").stdout)
    assert (made["action"], made["total"], made["rate"]) == ("delivery.requeue", 3, 50)
    failed = _id(sereno, "fails")
    named = json.loads(sereno("delivery", "requeue", failed, 2**70, "--background", "-o", "json").stdout)
    assert (named["wanted"]["ids"], named["total"]) == ([failed], 1)
    assert sereno("delivery", "requeue", "--recipient", "unknown", "--background", "--yes").exit_code == 7
    assert sereno("delivery", "requeue", failed, "--rate", "5/s").exit_code == 2


def test_a_requeue_and_its_audit_record_are_one_transaction(
    sereno: Command, notified: NotifiedRecipients, shop: str, connection: psycopg.Connection
) -> None:
    failed = _id(sereno, "fails")
    connection.execute("alter table sereno.audit add check (action <> 'delivery.requeue')")
    assert sereno("delivery", "requeue", failed, "-a", shop).exit_code != 0
    assert one(connection, "select state from sereno.deliveries where id = %s", failed) == "failed"
