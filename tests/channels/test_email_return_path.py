"""Signed return paths: a bounce names its email by the address that it comes back to, and none can be made up."""

import re
from typing import Any

import pytest

from sereno.channels.contract import Callback
from sereno.channels.email import Email
from sereno.channels.outcome import Down, Receipt, Sent
from sereno.channels.return_path import ReturnPath
from sereno.errors import InvalidAddress
from sereno.testing.smtp import MailServer
from tests.channels.test_email import mail, send
from tests.channels.test_email_bounces import SECRET, report

BASE = "bounces@mail.example.org"
DIGEST = "0123456789abcdef0123456789abcdef01234567"
MESSAGE_ID = f"{DIGEST}@example.org"
ACCOUNT = {"bounce_secret": SECRET, "return_path": BASE, "sender": "Shop <shop@example.org>"}
PATH = ReturnPath(BASE, SECRET).address(DIGEST)

COMPLAINT = """\
From: feedback@isp.example
To: feedback@mail.example.org
Content-Type: multipart/report; report-type=feedback-report; boundary="b1"

--b1
Content-Type: text/plain

This is an email abuse report.
--b1
Content-Type: message/feedback-report

Feedback-Type: {kind}
User-Agent: Isp-Feedback/1.0
Version: 1
Original-Mail-From: <{path}>

--b1
Content-Type: message/rfc822

From: shop@example.org
Message-ID: <{message_id}>
Subject: Hello

Good morning
--b1--
"""


def received(body: str, to: str | None = None, account: dict[str, Any] = ACCOUNT) -> list[Receipt]:
    headers = {"x-sereno-secret": SECRET} | ({} if to is None else {"x-sereno-recipient": to})
    return list(Email().webhook(Callback(body=body.encode(), headers=headers), account))


async def test_each_email_has_a_return_path_of_its_own_that_finds_it() -> None:
    async with MailServer() as server:
        outcomes = await send(server, mail(1), mail(2), **{**ACCOUNT, "sender": "shop@example.org"})
        (plain,) = await send(server, mail(1), bounce_secret=SECRET)
    first, second, without = (taken.sender for taken in server.mails)
    assert first != second
    assert without == "shop@example.org"
    assert re.fullmatch(r"bounces\+[a-z2-7]{48}@mail\.example\.org", first)
    assert outcomes[0] == plain, "the Message-ID is the same"
    for path, outcome in zip((first, second), outcomes, strict=True):
        (receipt,) = received(report(), to=path)
        assert isinstance(outcome, Sent)
        assert (receipt.provider_id, receipt.outcome) == (outcome.provider_id, "invalid")
    assert b"bounces" not in server.mails[0].raw, "a reader of the email does not see it"


PLACES = [
    (PATH, "From: MAILER-DAEMON"),
    (f"<{PATH.upper()}>", "From: MAILER-DAEMON"),
    (None, f"To: {PATH}\nFrom: MAILER-DAEMON"),
    (None, f"To: Bounces <{PATH}>\nFrom: MAILER-DAEMON"),
    ("bounces@mail.example.org", f"Delivered-To: {PATH}\nTo: x@example.org\nFrom: MAILER-DAEMON"),
    (None, f"X-Original-To: {PATH}\nFrom: MAILER-DAEMON"),
]


def test_the_address_of_a_bounce_is_found_where_servers_write_it(subtests: pytest.Subtests) -> None:
    without_original = report().replace("Message-ID:\n <abc@example.org>\n", "")
    for to, headers in PLACES:
        for body in (report(), without_original):
            with subtests.test(to=to, headers=headers):
                (receipt,) = received(body.replace("From: MAILER-DAEMON", headers, 1), to=to)
                assert receipt.provider_id == MESSAGE_ID


def test_the_message_id_of_the_returned_email_wins_if_it_has_the_same_digest() -> None:
    (receipt,) = received(report().replace("abc@example.org", f"{DIGEST}@old.example.org"), to=PATH)
    assert receipt.provider_id == f"{DIGEST}@old.example.org"


FORGED = [
    None,
    "bounces@mail.example.org",
    ReturnPath(BASE, "another").address(DIGEST),
    ReturnPath("bounces@other.example.org", SECRET).address(DIGEST),
    ReturnPath("other@mail.example.org", SECRET).address(DIGEST),
    PATH.replace("bounces+", "bounces+a"),
    PATH.replace("@", "a@"),
    PATH.replace(PATH[10], "a" if PATH[10] != "a" else "b", 1),
    f"x{PATH}",
    f"{PATH}.evil.example",
    "bounces+" + "a" * 48 + "@mail.example.org",
    "bounces+" + "é" * 48 + "@mail.example.org",
    (f"bounces+{'a' * 48}@mail.example.org," * 10_000),
]


def test_a_bounce_without_a_signed_address_changes_nothing(subtests: pytest.Subtests) -> None:
    for to in FORGED:
        with subtests.test(to=to and to[:80]):
            assert received(report(), to=to) == []


def test_an_automatic_reply_to_a_return_path_is_no_bounce() -> None:
    assert received(f"To: {PATH}\nAuto-Submitted: auto-replied\nSubject: Away\n\nI am on holiday.", to=PATH) == []


def test_a_complaint_is_found_by_return_path_or_message_id(subtests: pytest.Subtests) -> None:
    for path, message_id in [(PATH, "x@y.example"), (PATH, ""), ("", MESSAGE_ID), ("shop@example.org", MESSAGE_ID)]:
        with subtests.test(path=path, message_id=message_id):
            (receipt,) = received(COMPLAINT.format(kind="abuse", path=path, message_id=message_id))
            assert receipt == Receipt(
                provider_id=MESSAGE_ID,
                outcome="complained",
                code="abuse",
                message="Isp-Feedback/1.0",
                id=f"{MESSAGE_ID}.complained",
            )


def test_a_complaint_beside_a_bounce_does_not_replace_the_signed_address(subtests: pytest.Subtests) -> None:
    """Who has seen an email knows its Message-ID, and could deactivate the address."""
    status = "--b1\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; x\n\nAction: failed\nStatus: 5.1.1\n\n"
    for kind, outcomes in (("abuse", ["complained"]), ("not-spam", [])):
        with subtests.test(kind=kind):
            body = COMPLAINT.format(kind=kind, path="", message_id=MESSAGE_ID)
            found = received(
                body.replace("--b1\nContent-Type: message/rfc822", f"{status}--b1\nContent-Type: message/rfc822")
            )
            assert [receipt.outcome for receipt in found] == outcomes


KINDS = [
    ("Abuse", ["complained"]),
    ("fraud", ["complained"]),
    ("opt-out", ["unsubscribed"]),
    ("not-spam", []),
    ("auth-failure", []),
    ("", []),
    ("x" * 5000, []),
]


def test_only_complaints_of_people_are_receipts(subtests: pytest.Subtests) -> None:
    for kind, outcomes in KINDS:
        for account in (ACCOUNT, {"bounce_secret": SECRET}):
            with subtests.test(kind=kind[:20], account=account):
                found = received(COMPLAINT.format(kind=kind, path="", message_id=MESSAGE_ID), account=account)
                assert [receipt.outcome for receipt in found] == outcomes


WRONG: list[dict[str, Any]] = [
    {"return_path": BASE, "bounce_secret": ""},
    {"return_path": "no address", "bounce_secret": SECRET},
    {"return_path": f"{'b' * 16}@example.org", "bounce_secret": SECRET},
    {"return_path": "bounces+x@example.org", "bounce_secret": SECRET},
    {"return_path": "a\r\nRCPT TO:<x@example.org>", "bounce_secret": SECRET},
    {"return_path": 7, "bounce_secret": SECRET},
]


async def test_a_wrong_return_path_stops_the_channel(subtests: pytest.Subtests) -> None:
    async with MailServer() as server:
        for wrong in WRONG:
            with subtests.test(wrong=wrong):
                (outcome,) = await send(server, mail(), **wrong)
                assert isinstance(outcome, Down)
                assert outcome.code == "bad_settings"
                assert server.mails == []


def test_the_longest_base_makes_a_valid_address() -> None:
    address = ReturnPath(f"{'b' * 15}@example.org", SECRET).address(DIGEST)
    assert len(address.partition("@")[0]) == 64
    with pytest.raises(InvalidAddress, match="at most 15"):
        ReturnPath(f"{'b' * 16}@example.org", SECRET)


def test_the_settings_of_the_constructor_check_callbacks_too() -> None:
    channel = Email(bounce_secret=SECRET, return_path=BASE, sender="shop@example.org")
    callback = Callback(body=report().encode(), headers={"x-sereno-secret": SECRET, "x-sereno-recipient": PATH})
    assert [receipt.provider_id for receipt in channel.webhook(callback, {})] == [MESSAGE_ID]
