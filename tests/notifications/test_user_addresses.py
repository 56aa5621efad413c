"""A tenant that chooses its provider's server never gets the application's secrets."""

import psycopg
import pytest
from psycopg.types.json import Jsonb

from sereno import Sereno
from sereno.channels.contract import Exchange
from sereno.channels.email import Email
from sereno.channels.expo import Expo
from sereno.channels.twilio import Twilio
from sereno.testing.expo import ExpoProvider
from sereno.testing.smtp import MailServer
from sereno.testing.twilio import TwilioProvider
from tests.facts import auntil, one
from tests.notifications.conftest import Tender

HIDDEN = "canary-3d9a"
ACCOUNTS = "insert into sereno.accounts (channel, tenant, settings) values (%s, 'acme', %s)"


@pytest.mark.slow
async def test_the_constructors_credentials_are_not_sent_to_a_tenants_server(
    app: Sereno, connection: psycopg.Connection
) -> None:
    email = Email(host="mail.house.example", username="house", password=HIDDEN, sender="h@house.example", tls="none")
    sms = Twilio(account_sid="AChouse", auth_token=HIDDEN, from_number="+15005550006")
    published = app.event("tender.published", Tender, channels=[email, Expo(access_token=HIDDEN), sms])
    async with MailServer({"house": HIDDEN}) as mail, ExpoProvider() as expo, TwilioProvider() as twilio:
        theirs = {
            "email": {"host": mail.host, "port": mail.port, "tls": "none", "sender": "a@acme.example"},
            "expo": {"url": expo.url},
            "sms": {"url": twilio.url},
        }
        for channel, settings in theirs.items():
            connection.execute(ACCOUNTS, [channel, Jsonb(settings)])
        addresses = {"email": "ada@example.org", "expo": "ExponentPushToken[ada]", "sms": "+37120000001"}
        await app.recipients.aupsert("ada", addresses, tenant="acme")
        async with app.working():
            await published.anotify(Tender("T1"), subject="T1", tenant="acme", to="ada")
            await auntil(lambda: expo.accepted)
            # Without credentials, the other two channels are paused.
            await auntil(
                lambda: (
                    one(connection, "select array_agg(channel order by channel) from sereno.channel_pauses")
                    == ["email", "sms"]
                )
            )
        assert [line for line in mail.commands if line.startswith("AUTH")] == []
        assert [request.headers.get("authorization") for request in expo.log] == [None]
        assert list(twilio.log) == []


def test_an_account_stands_alone(subtests: pytest.Subtests) -> None:
    for own, account, alone in [
        (True, {"url": "https://push.acme.example"}, True),
        (True, {"host": "mail.acme.example", "username": "acme"}, True),
        (True, {"sender": "no-reply@acme.example"}, False),
        (True, {"url": ""}, False),
        (False, {"url": "https://push.house.example"}, False),
    ]:
        with subtests.test(own=own, account=account, alone=alone):
            exchange = Exchange({"first": account}, own=own)
            assert Exchange(account, own=own).stands_alone is alone
            assert not exchange.stands_alone


async def test_a_nested_account_stands_alone_like_its_parent() -> None:
    async with Exchange({"first": {}}, own=True) as outer:
        assert outer.with_account({"url": "https://push.acme.example"}).stands_alone
