"""Bounces: delivery reports become receipts, if the callback has the secret."""

from typing import Any

import pytest

from sereno.channels.contract import Callback
from sereno.channels.email import Email
from sereno.channels.outcome import Receipt, Sent
from sereno.errors import RejectedCallback
from sereno.testing.smtp import MailServer
from tests.channels.test_email import mail, send

SECRET = "bounce-canary"  # noqa: S105 - made up

REPORT = """\
From: MAILER-DAEMON@mx.example.com
Content-Type: multipart/report; report-type=delivery-status;
 boundary="b1"
Message-ID: <report@mx.example.com>

--b1

Sorry.
--b1
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.com

Final-Recipient: rfc822; user1@example.com
Action: {action}
Status: {status}
Diagnostic-Code: smtp; 550 no such
 user

--b1
Content-Type: {kind}

From: shop@example.org
Message-ID:
 <abc@example.org>
Subject: Hello

--b1--
"""


def returned(body: bytes | str, given: str | None = SECRET, **settings: Any) -> list[Receipt]:
    headers = {} if given is None else {"x-sereno-secret": given}
    raw = body if isinstance(body, bytes) else body.encode()
    return list(Email().webhook(Callback(body=raw, headers=headers), {"bounce_secret": SECRET, **settings}))


def report(action: str = "failed", status: str = "5.1.1", kind: str = "text/rfc822-headers") -> str:
    return REPORT.format(action=action, status=status, kind=kind)


def test_a_bounced_email_is_a_receipt(subtests: pytest.Subtests) -> None:
    for action, status, outcome in [
        *(("failed", "5.1.1", "invalid"), ("Failed", "5.1.10 (null MX)", "invalid"), ("failed", "5.2.2", "bounced")),
        *(("failed", "5.1.8", "bounced"), ("failed", "4.4.7", "bounced"), ("delivered", "2.0.0", "delivered")),
    ]:
        for kind in ["text/rfc822-headers", "message/rfc822"]:
            for ends in ["\n", "\r\n"]:
                with subtests.test(action=action, status=status, kind=kind, ends=ends):
                    (receipt,) = returned(report(action, status, kind).replace("\n", ends))
                    assert (receipt.provider_id, receipt.outcome) == ("abc@example.org", outcome)
                    assert (receipt.code, receipt.message) == (status.split(maxsplit=1)[0], "smtp; 550 no such user")
                    assert receipt.id == returned(report(action, status, kind).replace("\n", ends))[0].id


async def test_a_bounce_has_the_provider_id_of_the_sent_email() -> None:
    async with MailServer() as server:
        (outcome,) = await send(server, mail(), bounce_secret=SECRET)
        (guessable,) = await send(server, mail(), bounce_secret="another")  # noqa: S106 - made up
    assert isinstance(outcome, Sent)
    head = server.mails[0].raw.decode().partition("\r\n\r\n")[0]
    (receipt,) = returned(
        report()
        .replace("\n", "\r\n")
        .replace("Subject: Hello", head)
        .replace("Message-ID:\r\n <abc@example.org>\r\n", "")
    )
    assert receipt.provider_id == outcome.provider_id
    assert guessable != outcome, "without the secret, the Message-ID of a key cannot be computed"


def test_a_callback_with_a_wrong_secret_is_rejected(subtests: pytest.Subtests) -> None:
    for given in [None, "", "wrong", SECRET + " ", "ü", "\ud800"]:
        with subtests.test(given=given), pytest.raises(RejectedCallback):
            returned(report(), given)


def test_without_a_bounce_secret_every_callback_is_rejected(subtests: pytest.Subtests) -> None:
    for secret in [None, "", 7]:
        with subtests.test(secret=secret), pytest.raises(RejectedCallback):
            returned(report(), "", bounce_secret=secret)


NOT_REPORTS: list[bytes | str] = [
    *(b"", b"\0\xff" * 1000, b"Subject: hello\n\nI am on holiday", b"Content-Type: multipart/report\n\n--b1\n"),
    *(
        report("delayed", "4.4.1"),
        report("relayed", "2.0.0"),
        report("expanded", "2.0.0"),
        report("failed", "soon"),
    ),
    *(report().replace("Message-ID:\n <abc@example.org>\n", ""), report().replace("<abc@example.org>", "<<>>")),
    *(report(kind="text/plain"), report().replace("multipart/report", "multipart/mixed")),
    report().replace("Content-Type: message/delivery-status", "Content-Type: text/plain; charset=no-such-charset"),
    report().replace("report-type", "x" * 300_000),
    b"Content-Type: multipart/report; boundary=b" + b";" * 250_000,
    b"".join(b"Content-Type: multipart/report; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(5000)),
    b"Content-Type: multipart/report; boundary=b\n\n" + b"--b\n" * 500_000,
    b"Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/delivery-status\n\n"
    + b"a:\n\n" * 99_999,
    b"Content-Type: message/rfc822\n\n" * 9999,
    b"\n \n" * 99_999,
    b"\r" * 300_000,
]


@pytest.mark.timeout(30)
def test_an_email_that_is_not_a_report_has_no_receipts(subtests: pytest.Subtests) -> None:
    for body in NOT_REPORTS:
        with subtests.test(body=body[:200], length=len(body)):
            assert returned(body) == []


def test_only_the_start_of_a_huge_report_is_read() -> None:
    assert [receipt.outcome for receipt in returned(report() + "x" * 20_000_000)] == ["invalid"]
