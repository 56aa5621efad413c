"""A worker is killed during the search, between search and sending, and while it sends."""

from collections.abc import Callable

import psycopg
import pytest
from reminders.app import app, status
from reminders.stand_ins import StandIns
from reminders.tests.clients import sql

from sereno.testing.kit import Kit
from sereno.testing.smtp import SILENCE

pytestmark = pytest.mark.slow

Remind = Callable[..., int]

WAITS = (
    "select count(*) from pg_stat_activity "
    "where datname = current_database() and wait_event_type = 'Lock' and query like '%%events%%'"
)


def queued() -> int:
    return int(sql("select count(*) from reminders.reminders where queued_for = due_at")[0][0])


def test_a_worker_killed_during_the_search_leaves_no_trace(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """The worker has marked its reminders and waits to write the first event: everything is rolled back."""
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


def test_a_worker_killed_between_finding_and_sending_loses_nothing(
    kit: Kit, stand_ins: StandIns, remind: Remind
) -> None:
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
    assert all(delivery.attempts == 1 for delivery in kit.deliveries())


@pytest.mark.slow
@pytest.mark.quick
def test_a_mail_is_sent_again_after_a_kill_while_sending(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """The server accepted the mail but the worker died first: sent again with the same Message-ID, and counted."""
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
    assert [delivery.attempts for delivery in kit.deliveries()] == [2]


def test_an_sms_waits_for_an_operator_after_a_kill_while_sending(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """The outcome is unknown and a second SMS costs money: the delivery waits for an operator."""
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
    assert [delivery.state for delivery in kit.deliveries(channel="sms")] == ["unknown"]


def recover(kit: Kit) -> None:
    kit.lose_leases()
    kit.drain()
