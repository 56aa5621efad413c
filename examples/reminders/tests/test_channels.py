"""Providers misbehave: tries, dead letters, and the next channel."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import reminders
from reminders.app import app, status
from reminders.settings import FALLBACK_AFTER, MAX_ATTEMPTS
from reminders.stand_ins import BUSY, NOBODY, StandIns
from reminders.tests.asking import sql

from sereno.testing.kit import Kit
from sereno.testing.provider import Fault

Remind = Callable[..., int]


def told(kit: Kit) -> dict[str, str]:
    """How each channel fared."""
    return {each.channel: each.state for each in kit.deliveries()}


def find(kit: Kit) -> None:
    kit.travel("5m")
    kit.drain()


def fall_back(kit: Kit) -> None:
    kit.travel(FALLBACK_AFTER + 1)
    kit.drain()


def test_who_has_no_such_mailbox_gets_an_sms(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    app.recipients.upsert("bob", {"email": NOBODY, "sms": "+37120000002"})
    number = remind("bob")
    find(kit)
    assert told(kit) == {"email": "invalid"}
    assert status(number) == "OVERDUE"
    fall_back(kit)
    assert told(kit) == {"email": "invalid", "sms": "sent"}
    assert [form["To"] for form in stand_ins.phones.sent.values()] == ["+37120000002"]
    assert status(number) == "SENT"


def test_a_busy_mail_server_is_tried_five_times_then_an_sms_leaves(
    kit: Kit, stand_ins: StandIns, remind: Remind
) -> None:
    app.recipients.upsert("eve", {"email": BUSY, "sms": "+37120000003"})
    remind("eve")
    find(kit)
    while told(kit)["email"] == "pending":
        assert not stand_ins.phones.sent
        kit.travel_to_next()
        kit.drain()
    (dead,) = kit.deliveries(channel="email")
    assert (dead.state, dead.attempts) == ("dead", MAX_ATTEMPTS)
    assert sum(BUSY in command for command in stand_ins.mails.commands) == MAX_ATTEMPTS
    fall_back(kit)
    assert told(kit) == {"email": "dead", "sms": "sent"}


def test_who_cannot_be_reached_at_all_finds_it_in_the_application(
    kit: Kit, stand_ins: StandIns, remind: Remind
) -> None:
    number = remind("cyd")
    find(kit)
    fall_back(kit)
    fall_back(kit)
    assert told(kit) == {"email": "skipped", "sms": "skipped", "in_app": "delivered"}
    assert [row.title for row in app.inbox.list("cyd")] == ["Reminder: inspect the lift"]
    assert status(number) == "SENT"


def test_an_sms_that_may_have_left_is_not_sent_again(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    stand_ins.phones.fault = "close"
    remind(channel="sms")
    find(kit)
    stand_ins.phones.fault = None
    fall_back(kit)
    assert len(stand_ins.phones.log) == 1
    assert told(kit) == {"sms": "unknown", "in_app": "delivered"}


@pytest.mark.parametrize("fault", ["busy", "broken", "html"])
def test_a_provider_that_recovers_is_asked_again(kit: Kit, stand_ins: StandIns, remind: Remind, fault: Fault) -> None:
    stand_ins.chats.fault = fault
    remind(channel="telegram")
    find(kit)
    assert told(kit) == {"telegram": "pending"}
    stand_ins.chats.fault = None
    kit.travel("10m")
    kit.drain()
    assert told(kit)["telegram"] == "delivered"
    assert [message["chat_id"] for message in stand_ins.chats.sent] == [1001]


def test_wrong_credentials_stop_the_channel_and_cost_nobody_a_try(
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
    assert told(kit) == {"telegram": "delivered"}


def test_a_channel_is_one_file(
    kit: Kit, stand_ins: StandIns, remind: Remind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program without `telegram.py` knows no Telegram; with that one file, and nothing else, it does."""
    copy = tmp_path / "reminders"
    shutil.copytree(Path(reminders.__file__).parent, copy, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    file = copy / "channels" / "telegram.py"
    kept = file.read_text()
    file.unlink()
    monkeypatch.syspath_prepend(str(tmp_path))
    before = remind(channel="telegram")
    kit.travel("5m")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: told(kit) == {"in_app": "delivered"})
    file.write_text(kept)
    after = remind(channel="telegram")
    sql(f"select {app.settings.schema}.enqueue('reminders.find', queue => 'reminders')")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: [each.state for each in kit.deliveries(channel="telegram")] == ["delivered"])
    assert {each.subject: each.channel for each in kit.deliveries()} == {str(before): "in_app", str(after): "telegram"}
    assert len(stand_ins.chats.sent) == 1
