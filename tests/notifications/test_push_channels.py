"""FCM, APNs and Teams through the whole application: accounts of tenants, addresses that end, paused channels."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import psycopg
import pytest

from sereno import Sereno
from sereno.channels.apns import APNs
from sereno.channels.contract import Channel
from sereno.channels.fcm import FCM
from sereno.channels.teams import Teams
from sereno.database.json_values import encoder
from sereno.testing.apns import APNsProvider
from sereno.testing.chats import TeamsProvider
from sereno.testing.fcm import FCMProvider
from sereno.testing.provider import Provider
from tests.facts import auntil
from tests.notifications.conftest import States, Tender

GOOD, GONE, FOREIGN = ("0a1b2c3d" * 8, "4e5f6071" * 8, "8a9bacbd" * 8)


class Case(msgspec.Struct):
    """A channel of devices and its provider. `gone`, `foreign`: the provider's codes."""

    channel: Callable[[], Channel]
    provider: Callable[[], Any]
    gone: str
    foreign: str


CASES = [
    Case(FCM, FCMProvider, "UNREGISTERED", "SENDER_ID_MISMATCH"),
    Case(APNs, APNsProvider, "Unregistered", "DeviceTokenNotForTopic"),
]


@asynccontextmanager
async def two(case: Case) -> AsyncIterator[tuple[Any, Any]]:
    async with case.provider() as ours, case.provider() as theirs:
        yield ours, theirs


def add_account(connection: psycopg.Connection, channel: str, tenant: str, settings: Mapping[str, str]) -> None:
    connection.execute(
        "insert into sereno.accounts (channel, tenant, settings) values (%s, %s, %s::jsonb)",
        [channel, tenant, encoder.encode(settings).decode()],
    )


def test_each_channel_can_be_sent_by_jobs(app: Sereno, subtests: pytest.Subtests) -> None:
    for channel in (FCM(), APNs(), Teams()):
        with subtests.test(channel=channel.name):
            app.channels.add(channel)
            assert app.notifications.sender._send_jobs.for_deliveries(channel.name, "", 250)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.channel.__name__)
async def test_devices_that_are_gone_end_and_tenants_use_their_own_account(
    case: Case, app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = case.channel()
    published = app.event("tender.published", Tender, channels=[channel])
    async with two(case) as (ours, theirs):
        app.channels.add(channel, **ours.account)
        add_account(connection, channel.name, "acme", theirs.account)
        ours.refuses = {GONE: case.gone, FOREIGN: case.foreign}
        for recipient, address in (("good", GOOD), ("gone", GONE), ("foreign", FOREIGN)):
            await app.recipients.aupsert(recipient, {channel.name: address})
        await app.recipients.aupsert("good", {channel.name: GOOD}, tenant="acme")
        async with app.working():
            await published.anotify(Tender("T1"), subject="T1")
            await published.anotify(Tender("T2"), subject="T2", tenant="acme")
            await auntil(lambda: sorted(row[2] for row in states()) == ["failed", "invalid", "sent", "sent"])
        assert (len(ours.sent), len(theirs.sent)) == (1, 1)
    addresses = connection.execute("select address, state, reason from sereno.addresses order by state, address")
    found = [(address, state, (reason or "").partition(":")[0]) for address, state, reason in addresses]
    assert found == [(GOOD, "active", ""), (GOOD, "active", ""), (FOREIGN, "active", ""), (GONE, "invalid", case.gone)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.channel.__name__)
async def test_a_refused_account_of_a_tenant_pauses_that_tenant_alone(
    case: Case, app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    channel = case.channel()
    published = app.event("tender.published", Tender, channels=[channel])
    async with two(case) as (ours, theirs):
        app.channels.add(channel, **ours.account)
        wrong = {name: "wrong" for name in ("client_email", "team_id") if name in theirs.account}
        add_account(connection, channel.name, "acme", {**theirs.account, **wrong})
        for tenant in (None, "acme"):
            await app.recipients.aupsert("good", {channel.name: GOOD}, tenant=tenant)
        paused = "select account, reason from sereno.channel_pauses"
        async with app.working():
            await published.anotify(Tender("T2"), subject="T2", tenant="acme")
            await auntil(lambda: connection.execute(paused).fetchall())
            await published.anotify(Tender("T1"), subject="T1")
            await auntil(lambda: sorted(row[2] for row in states()) == ["pending", "sent"])
        assert [account for account, _ in connection.execute(paused)] == ["acme"]
        assert theirs.sent == []


async def test_a_message_in_teams_is_sent_and_a_deleted_workflow_ends_its_address(
    app: Sereno, connection: psycopg.Connection, states: States
) -> None:
    async with TeamsProvider() as provider:
        assert isinstance(provider, Provider)
        channel = Teams(url=provider.url)
        published = app.event("tender.published", Tender, channels=[channel])
        await app.recipients.aupsert("kitchen", {"teams": provider.address})
        async with app.working():
            await published.anotify(Tender("T1"), subject="T1")
            await auntil(lambda: [row[2] for row in states()] == ["sent"])
            provider.refuses = 400, "WorkflowTriggerIsNotEnabled", "the state of the workflow is 'Deleted'."
            await published.anotify(Tender("T2"), subject="T2")
            await auntil(lambda: sorted(row[2] for row in states()) == ["invalid", "sent"])
        assert len(provider.sent) == 1
    reasons = connection.execute("select state, reason from sereno.addresses").fetchall()
    assert reasons[0][0] == "invalid"
    assert provider.signature not in reasons[0][1]
