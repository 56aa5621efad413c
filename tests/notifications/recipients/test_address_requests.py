"""Addresses that recipients add themselves: who gets a confirmation message, how many, and what its link does."""

import re
import time
from typing import Any

import msgspec
import psycopg
import pytest

from sereno import AddressConfirmation, Content, QuietHours, Recipient, Sereno
from sereno.errors import ConfigurationError, InvalidAddress
from sereno.notifications.recipients import address_requests
from sereno.notifications.recipients.address_confirmation import LIFE_SECONDS, TEXTS, confirmation_content
from sereno.notifications.recipients.address_requests import MOST_RECIPIENTS, MOST_REQUESTS, REQUESTED, TooManyRequests
from sereno.notifications.recipients.address_token import PREFIX, AddressClaim, make_token, read_token
from sereno.notifications.recipients.preference_token import PreferenceOwner
from sereno.notifications.recipients.preference_token import make_token as make_preference_token
from sereno.server.web.messages import LANGUAGES
from tests.facts import advance, auntil, one
from tests.notifications.conftest import States, Tender
from tests.server.web.notifications.preference_pages import Mail

SECRET, HOME = "s" * 32, "https://post.example.com"
NEW = "ada@new.example.org"


@pytest.fixture
def mail(app: Sereno) -> Mail:
    """The channel of the application; its recipient ada has an address, and wants no mail and none at night."""
    app.override(secret=SECRET, public_url=HOME)
    mail = Mail()
    app.confirm_addresses(mail)
    app.event("tender.published", Tender, channels=[mail])
    app.recipients.upsert("ada", {"email": "ada@example.org"}, tenant="a")
    app.recipients.prefer("ada", tenant="a", channel="email", wanted=False, quiet=QuietHours("00:00", "23:59"))
    app.database.run(app.notifications.declare())
    return mail


def request(app: Sereno, address: str = NEW, key: str = "ada", tenant: str | None = "a", language: str = "es") -> None:
    app.database.run(address_requests.request_address(key, address, tenant=tenant, language=language))


def claim_of(mail: Mail) -> AddressClaim:
    (found,) = re.findall(rf"{HOME}/confirm-address/(\S+)", mail.sent[-1].body)
    claim = read_token(SECRET, found)
    assert claim is not None
    return claim


def state_of(connection: psycopg.Connection, address: str = NEW) -> Any:
    rows = connection.execute("select state, reason from sereno.addresses where address = %s", [address]).fetchall()
    return rows[0] if rows else None


async def test_an_address_is_used_once_its_link_is_confirmed(
    app: Sereno, mail: Mail, connection: psycopg.Connection, states: States
) -> None:
    published = app.notifications.event("tender.published")
    async with app.working():
        request(app, " Ada@NEW.example.org ".strip())
        await auntil(lambda: len(mail.sent) == 1)
        (message,) = mail.sent
        assert message.title == TEXTS["es"][0]
        assert message.address == "Ada@new.example.org"
        # The reader may be another person: no access to the preferences, and a link to refuse messages.
        assert message.preferences_url is None
        assert "/preference-centre/" not in message.body
        assert message.unsubscribe_url is not None
        assert one(connection, "select payload ->> 'url' from sereno.events") == ""
        claim = claim_of(mail)
        assert (claim.tenant, claim.recipient, claim.address) == ("a", "ada", "Ada@new.example.org")
        assert abs(claim.until - time.time() - LIFE_SECONDS) < 600
        app.recipients.prefer("ada", tenant="a", channel="email", wanted=True, quiet=None)
        await published.anotify(Tender("T1"), to="ada", tenant="a")
        await auntil(lambda: len(mail.sent) == 2)
        assert mail.sent[-1].address == "ada@example.org"
        for _ in range(2):
            assert app.database.run(address_requests.confirm_address(claim))
            assert state_of(connection, "Ada@new.example.org") == ("active", None)
        await published.anotify(Tender("T2"), to="ada", tenant="a")
        await auntil(lambda: len(mail.sent) == 4)
    assert {each.address for each in mail.sent[2:]} == {"ada@example.org", "Ada@new.example.org"}
    audited = connection.execute("select actor, action, detail ->> 'address' from sereno.audit order by id").fetchall()
    # Masked, and confirmed once.
    assert audited == [
        ("recipient ada", "recipient.request_address", "Ada@….org"),
        ("recipient ada", "recipient.confirm_address", "Ada@….org"),
    ]


async def test_only_an_unknown_address_gets_a_message_and_the_caller_cannot_tell(
    app: Sereno, mail: Mail, connection: psycopg.Connection, states: States
) -> None:
    app.recipients.upsert("ada", {"email": ["stopped@example.org", "gone@example.org"]}, tenant="a")
    app.recipients.unsubscribe("ada", "email", "stopped@example.org", tenant="a")
    connection.execute("update sereno.addresses set state = 'invalid' where address = 'gone@example.org'")
    async with app.working():
        for address in ("ada@example.org", "stopped@example.org", "gone@example.org", NEW):
            request(app, address)
        await auntil(lambda: len(states()) == 4 and all(row[2] in ("skipped", "sent") for row in states()))
    assert [message.address for message in mail.sent] == [NEW]
    assert [row[2:] for row in states()].count(("skipped", "no active address")) == 3
    assert state_of(connection, "stopped@example.org") == ("unsubscribed", "by the recipient")
    # Known or not, each counts.
    request(app, "ada@example.org")
    with pytest.raises(TooManyRequests):
        request(app, "ada@example.org")
    with pytest.raises(TooManyRequests):
        request(app, "other@example.org")


async def test_another_person_who_unsubscribes_gets_no_further_message(
    app: Sereno, mail: Mail, connection: psycopg.Connection, states: States
) -> None:
    async with app.working():
        request(app)
        await auntil(lambda: len(mail.sent) == 1)
        url = mail.sent[0].unsubscribe_url
        assert url is not None
        assert await app.recipients.aunsubscribe_with(url.rpartition("/")[2])
        assert not app.database.run(address_requests.confirm_address(claim_of(mail)))
        request(app)
        await auntil(lambda: ("ada", "email", "skipped", "no active address") in states())
    assert len(mail.sent) == 1
    assert state_of(connection)[0] == "unsubscribed"


def test_requests_are_counted_by_recipient_and_by_address(
    app: Sereno, mail: Mail, connection: psycopg.Connection
) -> None:
    for number in range(MOST_REQUESTS):
        request(app, f"new{number}@example.org")
    with pytest.raises(TooManyRequests):
        request(app, NEW)
    for number in range(MOST_RECIPIENTS + 1):
        app.recipients.upsert(f"user:{number}")
        request(app, NEW, f"user:{number}", None)
    assert one(connection, "select count(*) from sereno.addresses where address = %s", NEW) == MOST_RECIPIENTS
    asked = "select count(*) from sereno.events where (payload ->> 'address') is null"
    assert one(connection, asked) == 1
    advance(connection, 3601)
    request(app, NEW)
    assert one(connection, "select count(*) from sereno.addresses where address = %s", NEW) == MOST_RECIPIENTS + 1
    assert mail.sent == []


def test_what_is_not_confirmed_in_time_is_deleted_by_the_next_request(
    app: Sereno, mail: Mail, connection: psycopg.Connection
) -> None:
    # Of the application, which decides about it.
    app.recipients.upsert("ada", {"email": {"address": "own@example.org", "state": "unverified"}}, tenant="a")
    request(app, "typo@example.org")
    advance(connection, LIFE_SECONDS + 60)
    request(app)
    rows = connection.execute("select address, state, reason from sereno.addresses order by id").fetchall()
    assert rows == [
        ("ada@example.org", "active", None),
        ("own@example.org", "unverified", None),
        (NEW, "unverified", REQUESTED),
    ]
    assert mail.sent == []


@pytest.mark.usefixtures("mail")
def test_a_request_needs_an_address_and_a_recipient(app: Sereno, connection: psycopg.Connection) -> None:
    for address in ("ada", "a@b", "a@b.example\r\nBcc: eve@example.org", "", "x" * 300 + "@example.org"):
        with pytest.raises(InvalidAddress):
            request(app, address)
    for key, tenant in (("eve", "a"), ("ada", "b"), ("ada", None)):
        with pytest.raises(ConfigurationError, match="no recipient"):
            request(app, key=key, tenant=tenant)
    assert one(connection, "select count(*) from sereno.events") == 0


@pytest.mark.usefixtures("mail")
def test_a_link_is_for_one_recipient_and_address(app: Sereno, connection: psycopg.Connection) -> None:
    request(app)
    good = AddressClaim("a", "ada", "email", NEW, 2**40)
    for other in (
        {"tenant": "b"},
        {"tenant": None},
        {"recipient": "eve"},
        {"channel": "sms"},
        {"address": "eve@example.org"},
    ):
        assert not app.database.run(address_requests.confirm_address(msgspec.structs.replace(good, **other))), other
    assert state_of(connection) == ("unverified", REQUESTED)
    token = make_token(SECRET, good)
    assert read_token(SECRET, token) == good
    preferences = make_preference_token(SECRET, PreferenceOwner("a", "ada", 2**40))
    for wrong in (token[:-1], token[:-4] + "AAAA", PREFIX + preferences.removeprefix("srp_"), preferences, "", "<b>"):
        assert read_token(SECRET, wrong) is None, wrong
    assert read_token("t" * 32, token) is None


def test_the_message_has_a_text_in_each_language_and_can_have_another(app: Sereno) -> None:
    assert tuple(TEXTS) == LANGUAGES
    asked = AddressConfirmation(address=1, language="pt", until=1, url="https://x.example/1")
    for locale, language in {None: "pt", "es-MX": "es", "en": "en", "lv": "pt"}.items():
        made = confirmation_content(asked, Recipient(key="ada", locale=locale))
        assert made.title == TEXTS[language][0], locale
        assert made.body.count(asked.url) == 1
    confirmation = app.confirm_addresses(Mail())

    @confirmation.template()
    def _(asked: AddressConfirmation, to: Recipient) -> Content:
        return Content("Ours", f"{to.key} {asked.url}")

    found = app.notifications.definitions["sereno.confirm_address"].content(
        "email", msgspec.json.encode(asked), Recipient(key="ada")
    )
    assert found == Content("Ours", "ada https://x.example/1")
    with pytest.raises(ConfigurationError, match="channel email"):
        app.confirm_addresses("sms")
