"""Reminders are found, told once, and say how they stand."""

from collections.abc import Callable

import psycopg
import pytest
from reminders import app as program
from reminders.app import app, status
from reminders.stand_ins import StandIns
from reminders.tests.asking import sql

from sereno.testing.kit import Kit

Remind = Callable[..., int]


def test_a_due_reminder_is_told_once_however_often_it_is_looked_for(
    kit: Kit, stand_ins: StandIns, remind: Remind
) -> None:
    number = remind()
    assert status(number) == "OVERDUE"
    for _ in range(3):
        kit.travel("5m")
        kit.drain()
    (mail,) = stand_ins.mails.mails
    assert mail.recipients == ("ana@example.org",)
    assert mail.parsed()["subject"] == "Reminder: inspect the lift"
    assert status(number) == "SENT"
    assert len(kit.jobs("reminders.find", state="succeeded")) == 3
    assert not stand_ins.phones.sent, "who was reached by mail needs no SMS"


def test_what_is_not_due_waits(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    number = remind(due="1 day")
    kit.travel("5m")
    kit.drain()
    assert status(number) == "PENDING"
    assert not kit.deliveries()


def test_a_reminder_that_is_moved_is_told_again(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    number = remind()
    kit.travel("5m")
    kit.drain()
    sql("update reminders.reminders set due_at = now() + interval '1 day'")
    assert status(number) == "PENDING"
    sql("update reminders.reminders set due_at = now() - interval '1 second'")
    kit.travel("5m")
    kit.drain()
    assert status(number) == "SENT"
    assert len(stand_ins.mails.mails) == 2


def test_many_are_found_batch_by_batch(kit: Kit, remind: Remind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "BATCH", 10)
    numbers = {str(remind(channel="in_app")) for _ in range(25)}
    kit.travel("5m")
    kit.drain()
    assert len(kit.jobs("reminders.find", state="succeeded")) == 3
    assert {told.subject for told in kit.deliveries(channel="in_app") if told.state == "delivered"} == numbers
    assert app.inbox.unread("ana") == 25


def test_a_channel_that_does_not_exist_is_told_in_the_application(kit: Kit, remind: Remind) -> None:
    number = remind(channel="fax")
    kit.travel("5m")
    kit.drain()
    kit.assert_delivered("reminders.due.in_app", to="ana", channel="in_app")
    assert status(number) == "SENT"


def test_a_channel_that_is_not_active_is_told_in_the_application(
    kit: Kit, stand_ins: StandIns, remind: Remind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERENO_CHANNELS", "sms")
    number = remind(channel="email")
    kit.travel("5m")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: status(number) == "SENT")
    assert not stand_ins.mails.mails
    assert [(told.channel, told.state) for told in kit.deliveries()] == [("in_app", "delivered")]


@pytest.mark.parametrize(
    ("person", "title", "due"),
    [("ana", "", "now"), ("", "late", "now"), ("ana", "x" * 201, "now"), ("ana", "early", "-infinity")],
)
def test_a_reminder_that_nobody_could_tell_is_refused_where_it_is_written(
    kit: Kit, person: str, title: str, due: str
) -> None:
    """It would be found again and again, and hold up the others of its batch."""
    statement = "insert into reminders.reminders (person, title, due_at) values (%s, %s, %s)"
    with pytest.raises(psycopg.errors.CheckViolation):
        sql(statement, person, title, due)
