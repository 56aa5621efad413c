"""Faults of providers: retries, dead letters and fallback channels."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import reminders
from reminders.app import app, status
from reminders.channels import whatsapp
from reminders.channels.push import RECEIPTS_AFTER
from reminders.settings import FALLBACK_AFTER, MAX_ATTEMPTS
from reminders.stand_ins import BUSY, NO_MAILBOX, StandIns
from reminders.tests.clients import ANA, sql

from sereno import Content
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


def test_a_push_is_sent_and_a_device_that_is_gone_falls_back_to_the_inbox(
    kit: Kit, stand_ins: StandIns, remind: Remind
) -> None:
    """Expo accepts both; the receipt says a quarter of an hour later that Eve's device is gone."""
    app.recipients.upsert("eve", {"push": "ExponentPushToken[eve]"})
    stand_ins.pushes.receipts_of["ExponentPushToken[eve]"] = "DeviceNotRegistered"
    for person in ("ana", "eve"):
        remind(person, channel="push")
    find(kit)
    assert [push["title"] for push in stand_ins.pushes.accepted] == ["Reminder: inspect the lift"] * 2
    kit.travel(RECEIPTS_AFTER + 60)
    kit.drain()
    assert {each.recipient: each.state for each in kit.deliveries()} == {"ana": "delivered", "eve": "invalid"}
    kit.travel(2 * RECEIPTS_AFTER)
    fall_back(kit)
    kit.assert_delivered("reminders.due.push", to="eve", channel="in_app")
    assert app.inbox.unread("ana") == 0


def test_a_whatsapp_message_is_sent_and_a_number_without_it_gets_an_sms(
    kit: Kit, stand_ins: StandIns, remind: Remind
) -> None:
    stand_ins.whatsapps.refuses["+37120000004"] = 131026
    app.recipients.upsert("eve", {"whatsapp": "+37120000004", "sms": "+37120000004"})
    for person in ("ana", "eve"):
        remind(person, channel="whatsapp")
    find(kit)
    (message,) = stand_ins.whatsapps.sent.values()
    assert message["to"] == ANA["whatsapp"]
    assert message["text"]["body"].startswith("Reminder: inspect the lift\ndue on ")
    assert [each.state for each in kit.deliveries(to="eve")] == ["invalid"]
    fall_back(kit)
    kit.assert_delivered("reminders.due.whatsapp", to="eve", channel="sms")


def test_whatsapp_sends_the_approved_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most people did not write to us within a day, and Meta accepts a template for them alone."""
    monkeypatch.setattr(whatsapp, "TEMPLATE", "due_reminder")
    adapted = whatsapp.adapt(Content("Reminder: inspect the lift", "L-1: due today"))
    template = adapted.options["template"]
    assert (template["name"], template["language"]) == ("due_reminder", "en")
    (body,) = template["components"]
    assert [each["text"] for each in body["parameters"]] == ["Reminder: inspect the lift", "L-1: due today"]


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
    """Without `telegram.py` the program has no channel telegram; that one file, and activating it, is enough."""
    copy = tmp_path / "reminders"
    shutil.copytree(Path(reminders.__file__).parent, copy, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    file = copy / "channels" / "telegram.py"
    source = file.read_text()
    file.unlink()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("NOTIFICATION_ACTIVE_CHANNELS", "IN_APP,EMAIL")
    before = remind(channel="telegram")
    kit.travel("5m")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: states(kit) == {"in_app": "delivered"})
    file.write_text(source)
    monkeypatch.setenv("NOTIFICATION_ACTIVE_CHANNELS", "IN_APP,EMAIL,TELEGRAM")
    after = remind(channel="telegram")
    sql("select sereno.enqueue('reminders.find', queue => 'reminders')")
    with kit.crash_worker("reminders.app:app") as worker:
        worker.until(lambda: [each.state for each in kit.deliveries(channel="telegram")] == ["delivered"])
    assert {each.subject: each.channel for each in kit.deliveries()} == {str(before): "in_app", str(after): "telegram"}
    assert len(stand_ins.chats.sent) == 1
