"""Messages of alerts: what they contain, and what happens when a provider refuses them."""

from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.channels.discord import Discord
from sereno.channels.webhook import Webhook
from sereno.jobs import pauses
from sereno.monitoring.alerts import operations as alerts
from sereno.monitoring.alerts import sender as alert_sender
from sereno.monitoring.alerts import store
from sereno.monitoring.alerts.rule import AlertTarget
from sereno.monitoring.alerts.watcher import AlertWatcher
from sereno.testing.chats import DiscordProvider
from sereno.testing.webhook import WebhookReceiver
from sereno.worker import sessions
from tests.facts import advance, auntil, one, state
from tests.monitoring.alerts.alert_steps import ONLY, SECRET, pause_sms, resume_sms, rule


@pytest.mark.slow
async def test_a_discord_message_pings_no_one(
    app: Sereno, work: Any, watch: AlertWatcher, discord: DiscordProvider, connection: psycopg.Connection
) -> None:
    app.channels.add(Discord(url=discord.url))
    rule(app, **ONLY, targets=[AlertTarget(channel="discord", address=discord.address)])
    pause_sms(app, "401: hello @everyone and @here")
    async with app.working():
        await watch.check()
        (content,) = await auntil(lambda: list(discord.sent.values()))
        assert content["allowed_mentions"] == {"parse": []}
        assert "@everyone" not in content["content"]
        assert "@here" not in content["content"]
        assert content["content"].startswith("The channel sms is paused: 401: hello")
        assert "Remedy: sereno channel resume sms" in content["content"]
        resume_sms(app)
        advance(connection, 61)
        await watch.check()
        await auntil(lambda: len(discord.sent) == 2)
        assert list(discord.sent.values())[1]["content"].startswith("Over: The channel sms is paused")
    # The address is a secret, and is in no job.
    rows = connection.execute("select args::text from sereno.history where task = 'sereno.alert'").fetchall()
    assert len(rows) == 2
    assert not [row for row in rows if discord.token in row[0]]


async def test_a_webhook_is_signed_and_needs_no_code(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    app.channels.add(Webhook(private=True), private=True)
    async with WebhookReceiver([SECRET]) as receiver:
        target = AlertTarget(channel="webhook", address=f"{receiver.url}/hook", keys={"secrets": [SECRET]})
        rule(app, targets=[target])
        async with app.working():
            (job,) = app.database.run(alerts.try_rule("ops", actor="test"))
            await auntil(lambda: len(receiver.accepted) == 1)
            messages = receiver.accepted[f"sereno-alert-{job}"]
            assert (messages["type"], messages["data"]) == ("sereno.alert", {"rule": "ops", "what": "test"})


@pytest.mark.slow
async def test_a_refused_message_is_retried_or_becomes_a_dead_job(
    app: Sereno, work: Any, discord: DiscordProvider, connection: psycopg.Connection
) -> None:
    app.channels.add(Discord(url=discord.url))
    rule(app, targets=[AlertTarget(channel="discord", address=discord.address)])
    rule(app, "nowhere", targets=[AlertTarget(channel="fax", address="1")])
    discord.refuses = (429, 0)
    async with app.working():
        app.database.run(alerts.try_rule("ops"))
        await auntil(lambda: len(discord.log) == 1)
        discord.refuses = None
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs where state = 'scheduled'") == 1)
        advance(connection, 60)
        await auntil(lambda: len(discord.sent) == 1)
        discord.refuses = (401, 50027)
        app.database.run(alerts.try_rule("ops"))
        app.database.run(alerts.try_rule("nowhere"))
        await auntil(lambda: one(connection, "select count(*) from sereno.history_dead") == 2)
    reasons = [row[0] for row in connection.execute("select reason from sereno.history_dead order by id")]
    assert reasons[0].startswith("50027")
    assert discord.token not in reasons[0]
    assert reasons[1] == "unknown channel fax: add it with app.channels.add(…)"


async def test_a_removed_rule_sends_nothing(app: Sereno, work: Any, connection: psycopg.Connection) -> None:
    rule(app)
    (job,) = app.database.run(alerts.try_rule("ops"))
    assert app.database.run(alerts.remove_rule("ops"))
    async with app.working():
        await auntil(lambda: state(connection, job) == "succeeded")


def test_an_alert_is_enqueued_in_a_served_queue(app: Sereno, connection: psycopg.Connection) -> None:
    assert app.database.run(store.notification_queue()) is None
    given = {"host": "h", "pid": 1, "version": "0", "lease": 60.0}
    app.database.run(sessions.register(queues={"default": 1}, tasks=["other"], **given))  # type: ignore[arg-type]  # as a worker would
    app.database.run(sessions.register(queues={"b": 1, "c": 1}, tasks=["sereno.alert"], **given))  # type: ignore[arg-type]  # see above
    assert app.database.run(store.notification_queue()) == "b"
    app.database.run(pauses.pause("queue", "b"))
    assert app.database.run(store.notification_queue()) == "c"


@pytest.mark.slow
async def test_without_workers_the_scheduler_sends_an_alert_once(
    app: Sereno,
    work: Any,
    watch: AlertWatcher,
    discord: DiscordProvider,
    connection: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(alert_sender.BUILT_IN, "discord", lambda: Discord(url=discord.url))
    target = AlertTarget(channel="discord", address=discord.address)
    rule(app, kinds=["worker.none"], targets=[target, AlertTarget(channel="fax", address="1")])
    work.enqueue()
    await watch.check()
    (content,) = discord.sent.values()
    assert content["content"].startswith("No worker is alive.")
    assert one(connection, "select array_length(sent, 1) from sereno.alerts") == 1
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.jobs") == 0)
    states = connection.execute("select state from sereno.history where task = 'sereno.alert' order by id").fetchall()
    assert states == [("succeeded",), ("dead",)]
    assert len(discord.sent) == 1
