"""Email against a real local SMTP server, whose log shows what was sent."""

import base64
import logging
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.header import decode_header, make_header
from email.utils import parseaddr, parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from sereno.channels.contract import Exchange, Message
from sereno.channels.email import LARGEST_MAIL, Email
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.errors import InvalidAddress
from sereno.testing.smtp import CLOSE, SILENCE, MailServer, Step
from tests.channels.certificates import certified

PASSWORD = "correct horse battery"  # noqa: S105 - invented; the tests search outputs for it


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with MailServer() as started:
        yield started


def mail(number: int = 1, **fields: Any) -> Message:
    given = {"address": f"user{number}@example.com", "title": "Hello", "body": "Good morning", **fields}
    return Message(delivery=number, key=f"key-{number}", **given)


def account(server: MailServer, **settings: Any) -> dict[str, Any]:
    return {"host": server.host, "port": server.port, "sender": "Shop <shop@example.org>", **settings}


async def send(server: MailServer, *batch: Message, **settings: Any) -> list[Outcome]:
    async with Exchange(account(server, **settings)) as exchange:
        return list(await Email().send(batch, exchange))


async def test_an_accepted_email_is_sent_with_its_message_id(server: MailServer) -> None:
    (outcome,) = await send(server, mail(html="<p>Good morning</p>"))
    (taken,) = server.mails
    parsed = taken.parsed()
    assert isinstance(outcome, Sent)
    assert parsed["Message-ID"] == f"<{outcome.provider_id}>"
    assert (taken.sender, taken.recipients) == ("shop@example.org", ("user1@example.com",))
    assert (parsed["From"], parsed["To"], parsed["Subject"]) == (
        "Shop <shop@example.org>",
        "user1@example.com",
        "Hello",
    )
    assert (parsed["Auto-Submitted"], parsed["X-Entity-Ref-ID"]) == ("auto-generated", "key-1")
    assert abs(parsedate_to_datetime(parsed["Date"]) - datetime.now(UTC)) < timedelta(hours=1)
    assert [part.get_content().strip() for part in parsed.iter_parts()] == ["Good morning", "<p>Good morning</p>"]
    assert server.commands[-1] == "QUIT"


async def test_every_attempt_has_the_message_id_of_its_message(server: MailServer) -> None:
    server.say("END", "451 4.3.0 later")
    assert isinstance((await send(server, mail()))[0], Retryable)
    server.say("END", CLOSE)
    assert isinstance((await send(server, mail(attempt=2)))[0], Unknown)
    server.forget()
    await send(server, mail(attempt=3), mail(2))
    first, again, other = (taken.parsed()["Message-ID"] for taken in server.mails)
    assert first == again != other


async def test_a_batch_uses_one_connection_and_one_transaction_per_message(server: MailServer) -> None:
    outcomes = await send(server, *(mail(number) for number in range(Email.batch)))
    assert all(isinstance(outcome, Sent) for outcome in outcomes)
    assert server.connections == 1
    assert [taken.recipients for taken in server.mails] == [(f"user{n}@example.com",) for n in range(Email.batch)]


async def test_a_refused_recipient_does_not_affect_the_others(server: MailServer) -> None:
    server.say("RCPT", "550 5.1.1 no such user", to="user2@example.com")
    outcomes = await send(server, mail(1), mail(2), mail(3))
    assert [type(outcome) for outcome in outcomes] == [Sent, Invalid, Sent]
    assert [taken.recipients[0] for taken in server.mails] == ["user1@example.com", "user3@example.com"]
    assert server.connections == 1


REPLIES: list[tuple[Step, str, Outcome | type[Outcome]]] = [
    ("RCPT", "550 5.1.1 no such user", Invalid("smtp_550", "5.1.1 no such user")),
    ("RCPT", "553 5.1.3 bad address", Invalid("smtp_553", "5.1.3 bad address")),
    ("RCPT", "550 Requested action not taken: mailbox not found", Invalid),
    ("RCPT", "550-No such user here\r\n550 really", Invalid("smtp_550", "No such user here really")),
    ("RCPT", "550 blocked by policy", Failed("smtp_550", "blocked by policy")),
    ("RCPT", "550 5.7.1 user unknown to the spam filter", Failed),
    ("RCPT", "554 5.7.1 relay access denied", Failed),
    ("RCPT", "452 4.2.2 mailbox full", Retryable("smtp_452", "4.2.2 mailbox full")),
    ("RCPT", "421 4.7.0 too many", Retryable("smtp_421", "4.7.0 too many")),
    ("RCPT", "550 5.1.8 sender's domain not found", Down),
    ("RCPT", "550 5.1.0 <shop@example.org>: Sender address rejected", Down),
    ("RCPT", "530 5.7.0 sign in first", Down),
    ("MAIL", "550 5.7.1 you may not send as this", Down("smtp_550", "5.7.1 you may not send as this")),
    ("MAIL", "552 5.3.4 too large for us", Failed),
    ("MAIL", "451 4.7.1 slower", Retryable),
    ("DATA", "554 5.5.1 no", Failed),
    ("END", "554 5.6.0 spam", Failed("smtp_554", "5.6.0 spam")),
    ("END", "451 4.3.0 later", Retryable),
    ("EHLO", "421 4.3.2 going down", Retryable),
    ("CONNECT", "421 4.3.2 busy", Retryable),
    ("CONNECT", "554 5.7.1 not from this network", Down),
]


async def test_each_reply_of_the_server_has_an_outcome(subtests: pytest.Subtests) -> None:
    for step, reply, expected in REPLIES:
        with subtests.test(step=step, reply=reply):
            async with MailServer() as server:
                server.say(step, reply)
                (outcome,) = await send(server, mail())
                assert outcome == expected or type(outcome) is expected
                assert server.mails == []


BEFORE_THE_DOT: tuple[Step, ...] = ("CONNECT", "EHLO", "MAIL", "RCPT", "DATA")


@pytest.mark.slow
async def test_a_connection_cut_before_the_final_dot_is_retried(subtests: pytest.Subtests) -> None:
    for step in BEFORE_THE_DOT:
        for fault in [CLOSE, SILENCE]:
            with subtests.test(step=step, fault=fault):
                async with MailServer() as server:
                    server.say(step, fault)
                    outcomes = await send(server, mail(1), mail(2), timeout=0.2)
                    assert [type(outcome) for outcome in outcomes] == [Retryable, Retryable]
                    assert server.mails == []


@pytest.mark.slow
async def test_a_connection_cut_in_the_middle_of_an_email_sends_nothing(server: MailServer) -> None:
    server.say("BODY", CLOSE)
    outcomes = await send(server, mail(body=f"{'x' * 70}\n" * 110_000), mail(2))
    assert [type(outcome) for outcome in outcomes] == [Retryable, Retryable]


@pytest.mark.slow
async def test_no_valid_reply_after_the_dot_is_unknown_and_the_rest_is_retried(subtests: pytest.Subtests) -> None:
    for reply in [CLOSE, SILENCE, "garbage", "354 what", "25 half a code", "250-half\r\n"]:
        with subtests.test(reply=reply):
            async with MailServer() as server:
                server.say("END", reply, to="user2@example.com")
                timeout = 1.0 if reply == SILENCE else 20.0
                outcomes = await send(server, *(mail(number) for number in (1, 2, 3, 4)), timeout=timeout)
                assert [type(outcome) for outcome in outcomes] == [Sent, Unknown, Retryable, Retryable]
                assert {"user1@example.com"} <= {taken.recipients[0] for taken in server.mails}
                assert not {"user3@example.com", "user4@example.com"} & {taken.recipients[0] for taken in server.mails}


async def test_a_server_that_closes_in_the_middle_leaves_the_rest_for_later(server: MailServer) -> None:
    server.say("RCPT", "421 4.7.0 enough for today", to="user2@example.com")
    outcomes = await send(server, mail(1), mail(2), mail(3))
    assert [type(outcome) for outcome in outcomes] == [Sent, Retryable, Retryable]


async def test_a_failed_quit_changes_nothing(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    for fault in [CLOSE, SILENCE, "500 never"]:
        with subtests.test(fault=fault):
            async with MailServer() as server:
                monkeypatch.setattr("sereno.channels.email.QUIT_TIMEOUT", 0.1)
                server.say("QUIT", fault)
                assert isinstance((await send(server, mail()))[0], Sent)


async def test_a_refused_connection_is_retried() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        settings = {"host": "127.0.0.1", "port": bound.getsockname()[1], "sender": "shop@example.org"}
        async with Exchange(settings) as exchange:
            assert [type(o) for o in await Email().send([mail(1), mail(2)], exchange)] == [Retryable, Retryable]


async def test_each_authentication_method_works(subtests: pytest.Subtests) -> None:
    for way in ["PLAIN LOGIN", "LOGIN"]:
        with subtests.test(way=way):
            async with MailServer({"shop": PASSWORD}) as server:
                server.ways = way
                (outcome,) = await send(server, mail(), username="shop", password=PASSWORD, tls="none")
                assert isinstance(outcome, Sent)
                assert server.mails[0].username == "shop"


async def test_refused_credentials_mean_down_and_never_show_the_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    encoded = [base64.b64encode(text.encode()).decode() for text in (f"\0shop\0{PASSWORD}", PASSWORD)]
    async with MailServer({"shop": "another"}) as server:
        server.say("AUTH", f"535 5.7.8 not {PASSWORD}, not {' or '.join(encoded)}")
        channel = Email(username="shop", password=PASSWORD, tls="none")
        async with Exchange(account(server)) as exchange:
            outcomes = await channel.send([mail(1), mail(2)], exchange)
        assert [type(outcome) for outcome in outcomes] == [Down, Down]
        assert sum(line.startswith("AUTH") for line in server.commands) == 1
    seen = f"{outcomes!r} {channel!r} {vars(exchange).get('_session')} {caplog.text}"
    assert "5.7.8" in seen
    assert not [secret for secret in (PASSWORD, *encoded) if secret in seen]


async def test_authentication_may_fail_temporarily_or_permanently(subtests: pytest.Subtests) -> None:
    for reply, kind in [("454 4.7.0 try later", Retryable), ("534 5.7.9 too weak", Down), (CLOSE, Retryable)]:
        with subtests.test(reply=reply):
            async with MailServer({"shop": PASSWORD}) as server:
                server.say("AUTH", reply)
                assert type((await send(server, mail(), username="shop", password=PASSWORD, tls="none"))[0]) is kind


async def test_a_password_is_sent_unencrypted_only_if_configured() -> None:
    async with MailServer({"shop": PASSWORD}) as server:
        (outcome,) = await send(server, mail(), username="shop", password=PASSWORD)
        assert isinstance(outcome, Down)
        assert not [line for line in server.commands if line.startswith("AUTH")]


async def test_any_text_arrives_unchanged(subtests: pytest.Subtests) -> None:
    for title, body, sender in [
        ("Grüße aus São Paulo ☕", "Olá,\n.ponto\n..\n.\nção", "Zoë Ångström <zoe@example.org>"),
        ("é" * 300, "x" * 5000 + "\n" + "ж" * 5000, "Ж" * 90 + " <a@bücher.example>"),
        ("word " * 100, ".\r\n.\rQUIT\n", 'Doe, "Jane" <jane@example.org>'),
        ("x" * 2000, "", "a@example.org"),
        ("=?utf-8?q?spoof?=", "From here\n", "=?utf-8?q?spoof?= <a@example.org>"),
    ]:
        with subtests.test(title=title[:20], body=body[:20]):
            async with MailServer() as server:
                assert isinstance((await send(server, mail(title=title, body=body), sender=sender))[0], Sent)
                parsed = server.mails[0].parsed()
                name, _, address = sender.rpartition("<")
                # The newer parser inserts spaces between the encoded words of a name.
                shown, found = parseaddr(
                    str(make_header(decode_header(message_from_bytes(server.mails[0].raw)["From"])))
                )
                assert parsed["Subject"] == title.strip()
                assert parsed.get_content().splitlines() == (body or title).splitlines()
                assert shown == name.strip()
                assert found.rpartition("@")[2] == address.rstrip(">").rpartition("@")[2].encode("idna").decode()
                assert server.mails[0].raw.isascii()
                assert max(len(line) for line in server.mails[0].raw.split(b"\r\n")) < 998


async def test_no_text_can_add_a_header(subtests: pytest.Subtests) -> None:
    for end in ["\r\n", "\n", "\r", "\x0b", "\x85", "\u2028", "\0"]:
        with subtests.test(end=end):
            async with MailServer() as server:
                evil = f"Hello{end}Bcc: eve@example.com{end}{end}body"
                options = {"headers": {"X-Note": evil}, "reply_to": f"A{end}Bcc: eve@example.com <a@example.com>"}
                message = mail(title=evil, options=options)
                assert isinstance((await send(server, message, sender=f"Shop{end}Bcc: e <shop@example.org>"))[0], Sent)
                parsed = server.mails[0].parsed()
                assert (parsed["Bcc"], parsed["Subject"]) == (None, "Hello Bcc: eve@example.com body")
                assert parsed["X-Note"] == parsed["Subject"]
                assert parsed["Reply-To"].addresses[0].addr_spec == "a@example.com"
                assert [line for line in server.commands if "eve" in line] == []


async def test_one_click_unsubscribe_needs_https(subtests: pytest.Subtests) -> None:
    for url in ["https://shop.example/u/" + "t" * 300, "http://localhost/u/1"]:
        with subtests.test(url=url[:24]):
            async with MailServer() as server:
                await send(server, mail(unsubscribe_url=url))
                head = server.mails[0].raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")
                assert f"List-Unsubscribe: <{url}>" in head
                assert ("List-Unsubscribe-Post: List-Unsubscribe=One-Click" in head) is url.startswith("https:")


INVALID_MESSAGES: list[tuple[dict[str, Any], type]] = [
    ({"options": {"cc": "eve@example.com"}}, Failed),
    ({"options": {"headers": {"Bcc": "eve@example.com"}}}, Failed),
    ({"options": {"headers": {"X-A\r\nBcc": "eve@example.com"}}}, Failed),
    ({"options": {"headers": "X-A: 1"}}, Failed),
    ({"options": {"reply_to": "no-address"}}, Failed),
    ({"options": {"reply_to": 7}}, Failed),
    ({"unsubscribe_url": "https://a.example/>\r\nBcc: eve@example.com"}, Failed),
    ({"body": "x" * LARGEST_MAIL}, Failed),
    ({"address": "a@example.com>\r\nRCPT TO:<eve@example.com"}, Invalid),
    ({"title": "\ud800", "body": "\ud800\0", "html": "\ud800"}, Sent),
]


@pytest.mark.slow
async def test_an_invalid_message_does_not_affect_the_others(subtests: pytest.Subtests) -> None:
    for fields, kind in INVALID_MESSAGES:
        with subtests.test(fields=str(fields)[:80]):
            async with MailServer() as server:
                outcomes = await send(server, mail(1), mail(2, **fields), mail(3))
                assert [type(outcome) for outcome in outcomes] == [Sent, kind, Sent]
                assert [line for line in server.commands if "eve" in line] == []


async def test_invalid_settings_mean_down(server: MailServer, subtests: pytest.Subtests) -> None:
    for settings in [
        {"sender": ""},
        {"sender": "Shop"},
        {"port": "x"},
        {"tls": "maybe"},
        {"host": "a\nb"},
        {"reply_to": "x"},
    ]:
        with subtests.test(settings=settings):
            assert [type(outcome) for outcome in await send(server, mail(), **settings)] == [Down]
            assert server.commands == []


async def test_the_account_wins_over_the_constructor_and_the_template_over_both(server: MailServer) -> None:
    channel = Email(host="192.0.2.1", port=1, sender="old@example.org", reply_to="old@example.org")
    async with Exchange(account(server)) as exchange:
        await channel.send([mail(1), mail(2, options={"reply_to": "Desk <desk@example.org>"})], exchange)
        assert await channel.send([], exchange) == []
    assert [taken.parsed()["Reply-To"] for taken in server.mails] == ["old@example.org", "Desk <desk@example.org>"]
    assert server.connections == 1


@pytest.mark.parametrize("trusted", [True, False])
async def test_starttls_is_used_if_offered_and_requires_a_trusted_certificate(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = certified(tmp_path)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    async with MailServer({"shop": PASSWORD}, tls=context) as server:
        (outcome,) = await send(server, mail(), username="shop", password=PASSWORD)
        assert isinstance(outcome, Sent if trusted else Retryable)
        assert [taken.encrypted for taken in server.mails] == [True] * trusted


def test_addresses_are_normalised(subtests: pytest.Subtests) -> None:
    for given, stored in [
        ("Jane.Doe+tag@EXAMPLE.Com", "Jane.Doe+tag@example.com"),
        (" a@example.com ", "a@example.com"),
        ("a@bücher.example", "a@xn--bcher-kva.example"),
        ("a@例え.jp", "a@xn--r8jz45g.jp"),
        ("o'hara@a-b.example", "o'hara@a-b.example"),
    ]:
        with subtests.test(given=given, stored=stored):
            assert Email().check_address(given) == stored
            assert Email().check_address(stored) == stored


INVALID_ADDRESSES = [
    *("", "@", "a", "a@", "@example.com", "a@b", "a@@example.com", "a@b@example.com", "Jane <a@example.com>"),
    *("a@example.com\n", "a\r\n@example.com", "a\0@example.com", "a b@example.com", '"a b"@example.com'),
    *(
        "a@exa mple.com",
        "a@-a.com",
        "a@a..com",
        "a@example.com.",
        "a@[127.0.0.1]",
        "a@127.0.0.1",
        "a@under_score.com",
    ),
    *(".a@example.com", "a.@example.com", "a..b@example.com", "é@example.com", "a@faß.de", "a\uff20example.com"),
    *("a" * 65 + "@example.com", "a@" + "b" * 64 + ".com", "a@" + "b." * 130 + "com", "a@℀.com", "a@\ud800.com"),
    *("a@example.com,b@example.com", "<a@example.com>", "a@" + "é." * 60 + "com"),
]


def test_invalid_addresses_are_refused(subtests: pytest.Subtests) -> None:
    for address in INVALID_ADDRESSES:
        with subtests.test(address=address), pytest.raises(InvalidAddress):
            Email().check_address(address)
