"""`TASKS`: Django's tasks are enqueued as jobs in the transaction of Django's own connection."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import connection as django_connection
from django.db import transaction

from sereno.contrib.django import results
from sereno.contrib.django.backend import SerenoBackend
from sereno.contrib.django.framework import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from sereno.contrib.django.models import Return
from sereno.contrib.django.project import Project
from sereno.jobs.lifecycle import STATES
from tests.contrib.django.shop import tasks
from tests.contrib.django.shop.models import Order
from tests.contrib.django.shop.tasks import OutOfStockError
from tests.facts import advance, auntil, one

pytestmark = pytest.mark.usefixtures("shop")


def test_every_state_of_a_job_has_a_status() -> None:
    assert set(results._STATUS) == set(STATES)
    assert results._STATUS["waiting"] == TaskResultStatus.READY


def waiting(connection: psycopg.Connection) -> int:
    found: int = one(connection, "select count(*) from sereno.jobs")
    return found


async def work_off(shop: Project, connection: psycopg.Connection) -> None:
    """Run a worker until no job can run now."""
    async with shop.working({"default": 5, "mail": 5}):
        await auntil(lambda: not one(connection, "select count(*) from sereno.jobs where state <> 'scheduled'"))


def test_a_job_commits_with_the_order(connection: psycopg.Connection) -> None:
    with transaction.atomic():
        order = Order.objects.create(total=42)
        result = tasks.add_up.enqueue(order.pk)
        assert waiting(connection) == 0, "the job is invisible before the commit"
        assert tasks.add_up.get_result(result.id).status == TaskResultStatus.READY, "the transaction itself sees it"
    assert waiting(connection) == 1
    row = connection.execute("select task, args, queue, priority, id::text from sereno.jobs").fetchone()
    name = f"{tasks.__name__}.add_up"
    assert row == (name, {"args": [order.pk], "kwargs": {}}, "default", 5, result.id)


def test_a_rollback_removes_the_job(connection: psycopg.Connection) -> None:
    with transaction.atomic():
        result = tasks.add_up.enqueue(Order.objects.create(total=42).pk)
        transaction.set_rollback(True)
    assert waiting(connection) == 0
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add_up.get_result(result.id)


async def test_aenqueue_is_in_the_transaction_too(connection: psycopg.Connection) -> None:
    def in_a_transaction() -> None:
        with transaction.atomic():
            tasks.add_up.enqueue(1)
            transaction.set_rollback(True)

    await sync_to_async(in_a_transaction)()
    assert waiting(connection) == 0
    result = await tasks.add_up.aenqueue(1)
    assert waiting(connection) == 1
    assert (await tasks.add_up.aget_result(result.id)).status == TaskResultStatus.READY


@pytest.mark.slow
async def test_a_task_result_has_the_return_value(shop: Project, connection: psycopg.Connection) -> None:
    order = await Order.objects.acreate(total=42)
    plain = await tasks.add_up.aenqueue(order.pk, 1, 2)
    asynchronous = await tasks.add_up_async.aenqueue(order.pk)
    greeting = await tasks.greet.aenqueue("hello", loudly=True)
    await work_off(shop, connection)
    for result in (plain, asynchronous, greeting):
        await result.arefresh()
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert result.attempts == 1
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.errors == []
    assert plain.return_value == 45
    assert asynchronous.return_value == {"total": 42}
    assert greeting.return_value == [1, greeting.id, "HELLO"]
    assert greeting.kwargs == {"loudly": True}


async def test_a_failed_task_is_retried_and_its_errors_are_stored(
    shop: Project, connection: psycopg.Connection
) -> None:
    result = await tasks.fail.aenqueue("tea")
    await work_off(shop, connection)
    await result.arefresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.READY, 1, 1)
    advance(connection, 3600)
    async with shop.working({"default": 5}):
        await auntil(lambda: not waiting(connection))
    await result.arefresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.FAILED, 2, 2)
    assert result.errors[0].exception_class is OutOfStockError
    assert "tea" in result.errors[1].traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


async def test_a_task_whose_return_value_cannot_be_stored_is_not_retried(
    shop: Project, connection: psycopg.Connection
) -> None:
    results = [await tasks.return_a_set.aenqueue(), await tasks.give_up.aenqueue()]
    await work_off(shop, connection)
    for result, reason in zip(results, ("the return value cannot be stored", "not wanted"), strict=True):
        await result.arefresh()
        assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
        assert one(connection, "select reason from sereno.history where id = %s", int(result.id)).startswith(reason)


@pytest.mark.slow
async def test_a_requeued_job_loses_its_return_value(shop: Project, connection: psycopg.Connection) -> None:
    result = await tasks.return_nothing.aenqueue()
    await sync_to_async(Return.objects.create)(job_id=int(result.id), value="old", stored_at=datetime.now(UTC))
    connection.execute("update sereno.jobs set attempt = 1")
    await work_off(shop, connection)
    await result.arefresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value is None


def test_priorities_keep_their_order() -> None:
    priorities = [100, 81, 80, 1, 0, -1, -25, -26, -100]
    results = [tasks.add_up.using(priority=priority).enqueue(1) for priority in priorities]
    with django_connection.cursor() as cursor:
        cursor.execute("select priority from sereno.jobs order by id")
        assert [row[0] for row in cursor.fetchall()] == [0, 0, 1, 4, 5, 6, 6, 7, 9]
    shown = [tasks.add_up.get_result(result.id).task.priority for result in results]
    assert shown == sorted(shown, reverse=True)
    assert (shown[0], shown[4], shown[-1]) == (100, 0, -100)


def test_a_task_waits_for_its_time_in_its_queue(connection: psycopg.Connection) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    result = tasks.add_up.using(run_after=later, queue_name="mail").enqueue(1)
    row = connection.execute("select state, run_at, queue from sereno.jobs").fetchone()
    assert row == ("scheduled", later, "mail")
    assert tasks.add_up.get_result(result.id).task.queue_name == "mail"


def test_the_result_of_an_invalid_id_does_not_exist(subtests: pytest.Subtests) -> None:
    for wrong in ["", "0", "x", "-1", "1; drop table sereno.jobs", "٣", "9" * 30]:
        with subtests.test(wrong=wrong), pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(wrong)


def test_a_task_name_from_a_row_imports_nothing(connection: psycopg.Connection) -> None:
    made = one(connection, "select sereno.enqueue('antigravity.geohash')")
    with pytest.raises(TaskResultDoesNotExist, match="not a Django task here"):
        task_backends["default"].get_result(str(made))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="'retries'"):
        SerenoBackend("default", {"OPTIONS": {"retries": 3}})


@pytest.fixture
def sent_signals() -> Iterator[list[tuple[str, Any]]]:
    sent: list[tuple[str, Any]] = []
    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}

    def receivers(name: str) -> Any:
        def receive(task_result: Any, **_: Any) -> None:
            sent.append((name, task_result.status))

        return receive

    connected = {name: receivers(name) for name in signals}
    for name, signal in signals.items():
        signal.connect(connected[name])
    yield sent
    for name, signal in signals.items():
        signal.disconnect(connected[name])


@pytest.mark.slow
async def test_signals_are_sent_for_each_attempt(
    shop: Project, connection: psycopg.Connection, sent_signals: list[tuple[str, Any]]
) -> None:
    await tasks.return_nothing.aenqueue()
    await work_off(shop, connection)
    ready, running, done = TaskResultStatus.READY, TaskResultStatus.RUNNING, TaskResultStatus.SUCCESSFUL
    assert sent_signals == [("enqueued", ready), ("started", running), ("finished", done)]
    sent_signals.clear()
    await tasks.fail.aenqueue("tea")
    await work_off(shop, connection)
    assert sent_signals == [("enqueued", ready), ("started", running)], "the task is retried, so it has not finished"


async def test_old_return_values_are_deleted(shop: Project, connection: psycopg.Connection) -> None:
    from sereno.contrib.django.retention import delete_old_results  # noqa: PLC0415 - it declares a schedule when imported

    old = datetime.now(UTC) - timedelta(days=shop.settings.keep_history_days, minutes=1)
    for number, moment in enumerate([old, old + timedelta(minutes=2)]):
        await Return.objects.acreate(job_id=number, value=1, stored_at=moment)
    assert await sync_to_async(delete_old_results)() == {"deleted": 1}
    assert [row.job_id async for row in Return.objects.all()] == [1]
