"""Faults of providers: retries, dead letters and fallback channels."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import reminders
from reminders.app import app, status
from reminders.settings import FALLBACK_AFTER, MAX_ATTEMPTS
from reminders.stand_ins import BUSY, NO_MAILBOX, StandIns
from reminders.tests.clients import sql

from sereno.testing.kit import Kit
from sereno.testing.provider import Fault

pytestmark = pytest.mark.slow

Remind = Callable[..., int]


def states(kit: Kit) -> dict[str, str]:
    """Return the state of the delivery of each channel."""
    return {each.channel: each.state for each in kit.deliveries()}


def find(kit: Kit) -> None:
    kit.travel("5m")
    kit.drain()


def fall_back(kit: Kit) -> None:
    kit.travel(FALLBACK_AFTER + 1)
    kit.drain()


def test_an_invalid_mailbox_falls_back_to_sms(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    app.recipients.upsert("bob", {"email": NO_MAILBOX, "sms": "+37120000002"})
    number = remind("bob")
    find(kit)
    assert states(kit) == {"email": "invalid"}
    assert status(number) == "OVERDUE"
    fall_back(kit)
    assert states(kit) == {"email": "invalid", "sms": "sent"}
    assert [form["To"] for form in stand_ins.phones.sent.values()] == ["+37120000002"]
    assert status(number) == "SENT"


def test_a_busy_mail_server_is_tried_five_times_then_an_sms_is_sent(
    kit: Kit, stand_ins: StandIns, remind: Remind
) -> None:
    app.recipients.upsert("eve", {"email": BUSY, "sms": "+37120000003"})
    remind("eve")
    find(kit)
    while states(kit)["email"] == "pending":
        assert not stand_ins.phones.sent
        kit.travel_to_next()
        kit.drain()
    (dead,) = kit.deliveries(channel="email")
    assert (dead.state, dead.attempts) == ("dead", MAX_ATTEMPTS)
    assert sum(BUSY in command for command in stand_ins.mails.commands) == MAX_ATTEMPTS
    fall_back(kit)
    assert states(kit) == {"email": "dead", "sms": "sent"}


def test_a_recipient_without_addresses_gets_it_in_the_inbox(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    number = remind("cyd")
    find(kit)
    fall_back(kit)
    fall_back(kit)
    assert states(kit) == {"email": "skipped", "sms": "skipped", "in_app": "delivered"}
    assert [row.title for row in app.inbox.list("cyd")] == ["Reminder: inspect the lift"]
    assert status(number) == "SENT"


def test_an_sms_with_an_unknown_outcome_is_not_sent_again(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    stand_ins.phones.fault = "close"
    remind(channel="sms")
    find(kit)
    stand_ins.phones.fault = None
    fall_back(kit)
    assert len(stand_ins.phones.log) == 1
    assert states(kit) == {"sms": "unknown", "in_app": "delivered"}


@pytest.mark.parametrize("fault", ["busy", "broken", "html"])
def test_a_provider_that_recovers_is_retried(kit: Kit, stand_ins: StandIns, remind: Remind, fault: Fault) -> None:
    stand_ins.chats.fault = fault
    remind(channel="telegram")
    find(kit)
    assert states(kit) == {"telegram": "pending"}
    stand_ins.chats.fault = None
    kit.travel("10m")
    kit.drain()
    assert states(kit)["telegram"] == "delivered"
    assert [message["chat_id"] for message in stand_ins.chats.sent] == [1001]


def test_wrong_credentials_pause_the_channel_and_use_up_no_attempt(
    kit: Kit, stand_ins: StandIns, remind: Remind
) -> None:
    stand_ins.chats.fault = "denied"
    remind(channel="telegram")
    find(kit)
    (waiting,) = kit.deliveries()
    assert (waiting.state, waiting.attempts) == ("pending", 0)
    stand_ins.chats.fault = None
    app.notifications.resume("telegram")
    kit.drain()
    assert states(kit) == {"telegram": "delivered"}


def test_a_channel_is_one_file(
    kit: Kit, stand_ins: StandIns, remind: Remind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `telegram.py` the program has no channel telegram; adding that one file is enough."""
    copy = tmp_path / "reminders"
    shutil.copytree(Path(reminders.__file__).parent, copy, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    file = copy / "channels" / "telegram.py"
    source = file.read_text()
    file.unlink()
    monkeypatch.syspath_prepend(str(tmp_path))
    before = remind(channel="telegram")
    kit.travel("5m")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: states(kit) == {"in_app": "delivered"})
    file.write_text(source)
    after = remind(channel="telegram")
    sql(f"select {app.settings.schema}.enqueue('reminders.find', queue => 'reminders')")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: [each.state for each in kit.deliveries(channel="telegram")] == ["delivered"])
    assert {each.subject: each.channel for each in kit.deliveries()} == {str(before): "in_app", str(after): "telegram"}
    assert len(stand_ins.chats.sent) == 1
