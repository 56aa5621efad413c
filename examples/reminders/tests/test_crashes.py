"""A worker is killed while it looks, between finding and sending, and while it sends."""

from collections.abc import Callable

import psycopg
from reminders.app import app, status
from reminders.stand_ins import StandIns
from reminders.tests.asking import sql

from sereno.testing.kit import Kit
from sereno.testing.smtp import SILENCE

Remind = Callable[..., int]

WAITS = (
    "select count(*) from pg_stat_activity "
    "where datname = current_database() and wait_event_type = 'Lock' and query like '%%events%%'"
)


def queued() -> int:
    return int(sql("select count(*) from reminders.reminders where queued_for = due_at")[0][0])


def test_killed_while_it_looks(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """It has marked its reminders, and waits to write the first event: nothing of it may stay."""
    numbers = [remind() for _ in range(3)]
    kit.travel("5m")
    with psycopg.connect(app.url) as connection:
        connection.execute(f"lock table {app.settings.schema}.events in share mode".encode())
        with kit.crash_worker("reminders.app:app") as worker:
            worker.until(lambda: sql(WAITS)[0][0])
            worker.kill()
    assert queued() == 0
    recover(kit)
    assert [status(number) for number in numbers] == ["SENT"] * 3
    assert len(stand_ins.mails.mails) == 3


def test_killed_between_finding_and_sending(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """This worker serves the queue of the search alone, so it dies with everything found and nothing sent."""
    numbers = [remind() for _ in range(3)]
    kit.travel("5m")
    with kit.crash_worker("reminders.app:app", "--queue", "reminders=2") as worker:
        worker.until(lambda: queued() == 3)
        worker.kill()
    assert not stand_ins.mails.mails
    recover(kit)
    assert [status(number) for number in numbers] == ["SENT"] * 3
    assert len(stand_ins.mails.mails) == 3
    assert all(told.attempts == 1 for told in kit.deliveries())


def test_killed_while_it_sends_a_mail(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """The server took the mail, and nobody lived to hear it: sent again, with the same number, and the row says so."""
    number = remind()
    kit.travel("5m")
    stand_ins.mails.say("END", SILENCE)
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: stand_ins.mails.mails)
        worker.kill()
    stand_ins.mails.forget()
    recover(kit)
    kit.travel("10m")
    kit.drain()
    assert status(number) == "SENT"
    first, second = (mail.parsed()["message-id"] for mail in stand_ins.mails.mails)
    assert first == second
    assert [told.attempts for told in kit.deliveries()] == [2]


def test_killed_while_it_sends_an_sms(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """Nobody knows whether Twilio sent it, and a second one costs money: it waits for a person."""
    remind(channel="sms")
    kit.travel("5m")
    stand_ins.phones.fault = "silence"
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: stand_ins.phones.log)
        worker.kill()
    stand_ins.phones.fault = None
    recover(kit)
    kit.travel("1m")
    kit.drain()
    assert len(stand_ins.phones.log) == 1
    assert [told.state for told in kit.deliveries(channel="sms")] == ["unknown"]


def recover(kit: Kit) -> None:
    kit.lose_leases()
    kit.drain()
