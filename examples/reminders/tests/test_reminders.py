"""Reminders are found, sent once, and have a status."""

from collections.abc import Callable

import psycopg
import pytest
from reminders import app as program
from reminders.app import app, status
from reminders.stand_ins import StandIns
from reminders.tests.clients import sql

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

Remind = Callable[..., int]


@pytest.mark.quick
def test_a_due_reminder_is_sent_once_by_repeated_searches(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
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
    assert not stand_ins.phones.sent, "the mail was sent, so no SMS is needed"


def test_a_reminder_is_not_sent_before_its_due_date(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    number = remind(due="1 day")
    kit.travel("5m")
    kit.drain()
    assert status(number) == "PENDING"
    assert not kit.deliveries()


def test_a_reminder_that_is_moved_is_sent_again(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
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


def test_many_reminders_are_found_batch_by_batch(kit: Kit, remind: Remind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "BATCH", 10)
    numbers = {str(remind(channel="in_app")) for _ in range(25)}
    kit.travel("5m")
    kit.drain()
    assert len(kit.jobs("reminders.find", state="succeeded")) == 3
    assert {
        delivery.subject for delivery in kit.deliveries(channel="in_app") if delivery.state == "delivered"
    } == numbers
    assert app.inbox.unread("ana") == 25


def test_an_unknown_channel_falls_back_to_the_inbox(kit: Kit, remind: Remind) -> None:
    number = remind(channel="fax")
    kit.travel("5m")
    kit.drain()
    kit.assert_delivered("reminders.due.in_app", to="ana", channel="in_app")
    assert status(number) == "SENT"


def test_an_inactive_channel_falls_back_to_the_inbox(
    kit: Kit, stand_ins: StandIns, remind: Remind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFICATION_ACTIVE_CHANNELS", "IN_APP,SMS")
    number = remind(channel="email")
    kit.travel("5m")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: status(number) == "SENT")
    assert not stand_ins.mails.mails
    assert [(delivery.channel, delivery.state) for delivery in kit.deliveries()] == [("in_app", "delivered")]


def test_an_invalid_reminder_is_refused_on_insert(kit: Kit, subtests: pytest.Subtests) -> None:
    """An invalid reminder would be found again and again, and block the others of its batch."""
    for person, title, due in [
        ("ana", "", "now"),
        ("", "late", "now"),
        ("ana", "x" * 201, "now"),
        ("ana", "early", "-infinity"),
    ]:
        with subtests.test(person=person, title=title[:10], due=due):
            statement = "insert into reminders.reminders (person, title, due_at) values (%s, %s, %s)"
            with pytest.raises(psycopg.errors.CheckViolation):
                sql(statement, person, title, due)
