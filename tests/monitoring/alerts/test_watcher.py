"""Alerts are sent once, repeated while open, and resolved once, also when the leading scheduler changes or dies."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import Sereno
from sereno.channels.discord import Discord
from sereno.channels.webhook import Webhook
from sereno.errors import InvalidAddress, InvalidArguments
from sereno.jobs import pauses
from sereno.monitoring.alerts import condition_queries, store
from sereno.monitoring.alerts import operations as alerts
from sereno.monitoring.alerts import sender as alert_sender
from sereno.monitoring.alerts import watcher as engine
from sereno.monitoring.alerts.condition import AlertCondition, condition
from sereno.monitoring.alerts.rule import AGAIN, Alert, AlertRule, AlertTarget, LogRule, calm, checked, decide
from sereno.monitoring.alerts.scheduler import scheduler_with_alerts
from sereno.monitoring.alerts.watcher import AlertWatcher, ConditionSnapshot, follow
from sereno.notifications.deliveries import store as deliveries
from sereno.schedules.scheduler import Scheduler
from sereno.testing.chats import DiscordProvider
from sereno.testing.webhook import WebhookReceiver
from sereno.worker import sessions
from tests.facts import advance, auntil, one, state

SECRET = "whsec_" + "A" * 40
NOW = datetime(2026, 11, 15, 3, tzinfo=UTC)


@pytest.fixture
async def discord() -> AsyncIterator[DiscordProvider]:
    async with DiscordProvider() as provider:
        yield provider


@pytest.fixture
def watch(app: Sereno) -> AlertWatcher:
    return AlertWatcher(app.url, app.settings, lambda: True)


@pytest.fixture(autouse=True)
async def _closed(watch: AlertWatcher) -> AsyncIterator[None]:
    yield
    await watch.stop()


def rule(app: Sereno, name: str = "ops", **options: Any) -> AlertRule:
    # No server listens there, so no message is delivered.
    given = {"targets": [AlertTarget(channel="discord", address="http://127.0.0.1:9/api/webhooks/1/x")], **options}
    made = AlertRule(name=name, **given)
    app.database.run(alerts.set_rule(made, actor="test"))
    return made


def pause_sms(app: Sereno, reason: str = "401: bad") -> None:
    app.database.run(deliveries.pause_channel("sms", "", reason))


def resume_sms(app: Sereno) -> None:
    app.database.run(deliveries.resume_channel("sms"))


def sent(connection: psycopg.Connection) -> list[str]:
    """Return the messages of the enqueued jobs, in order."""
    rows = connection.execute("select args ->> 'what' from sereno.jobs where task = 'sereno.alert' order by id")
    return [row[0] for row in rows]


ONLY: dict[str, Any] = {"kinds": ["channel.paused"]}


async def test_an_alert_is_sent_repeated_and_resolved_once(
    app: Sereno, watch: AlertWatcher, connection: psycopg.Connection
) -> None:
    rule(app, **ONLY)
    await watch.check()
    assert sent(connection) == []
    pause_sms(app)
    for _ in range(3):
        await watch.check()
    assert sent(connection) == ["opened"]
    advance(connection, AGAIN - 60)
    await watch.check()
    assert sent(connection) == ["opened"]
    advance(connection, 61)
    await watch.check()
    await watch.check()
    assert sent(connection) == ["opened", "again"]
    resume_sms(app)
    await watch.check()
    assert sent(connection) == ["opened", "again"], "the condition may return at once"
    advance(connection, 61)
    for _ in range(3):
        await watch.check()
    assert sent(connection) == ["opened", "again", "over"]
    (row,) = app.database.run(alerts.list_alerts(10))
    assert (row.rule, row.kind, row.subject, row.times) == ("ops", "channel.paused", "sms", 2)
    assert row.resolved_at is not None
    assert row.resolved_notified_at is not None
    assert row.words == "The channel sms is paused: 401: bad"


async def test_a_returning_condition_reopens_its_alert_and_takes_longer_to_resolve(
    app: Sereno, watch: AlertWatcher, connection: psycopg.Connection
) -> None:
    rule(app, **ONLY)
    for _ in range(2):
        pause_sms(app)
        await watch.check()
        resume_sms(app)
        advance(connection, 61)
        await watch.check()
    # The second time, a minute without the condition is not enough to resolve the alert.
    assert sent(connection) == ["opened", "over", "opened"]
    advance(connection, 61)
    await watch.check()
    assert sent(connection) == ["opened", "over", "opened", "over"]
    assert one(connection, "select openings from sereno.alerts") == 2
    assert one(connection, "select count(*) from sereno.alerts") == 1
    advance(connection, 3700)
    pause_sms(app)
    await watch.check()
    assert one(connection, "select count(*) from sereno.alerts") == 2


async def test_a_condition_that_does_not_last_is_not_sent(
    app: Sereno, watch: AlertWatcher, connection: psycopg.Connection
) -> None:
    rule(app, **ONLY, for_seconds=300)
    pause_sms(app)
    await watch.check()
    assert (sent(connection), one(connection, "select count(*) from sereno.alerts")) == ([], 1)
    resume_sms(app)
    await watch.check()
    assert one(connection, "select count(*) from sereno.alerts") == 0, "it was never sent"
    pause_sms(app)
    await watch.check()
    advance(connection, 301)
    await watch.check()
    assert sent(connection) == ["opened"]


async def test_a_rule_matches_only_its_kind_level_queue_and_tenant(
    app: Sereno, watch: AlertWatcher, connection: psycopg.Connection
) -> None:
    rule(app, "bad", level="bad", kinds=["channel.paused", "channel.account"])
    rule(app, "other-queue", queue="mails")
    rule(app, "theirs", tenant="r42")
    rule(app, "others", tenant="r7")
    pause_sms(app)
    app.database.run(deliveries.pause_channel("sms", "r42", "no_account: none"))
    await watch.check()
    found = connection.execute("select rule, kind from sereno.alerts order by rule").fetchall()
    assert found == [("bad", "channel.paused"), ("theirs", "channel.account")]


async def test_a_worse_level_is_sent_at_once(app: Sereno, connection: psycopg.Connection) -> None:
    rule(app)
    for level in ("warn", "warn", "bad", "bad", "warn"):
        found = condition("queue.late", "mails", level, "look", queue="mails", ready=1, age="1 m")
        app.database.run(follow("ops", ConditionSnapshot([found], set())))
    assert sent(connection) == ["opened", "again"]


async def test_a_silenced_alert_is_not_repeated_until_the_silence_ends(
    app: Sereno, watch: AlertWatcher, connection: psycopg.Connection
) -> None:
    rule(app, **ONLY)
    pause_sms(app)
    await watch.check()
    (row,) = app.database.run(alerts.list_alerts(1))
    until = one(connection, "select sereno.now() + interval '10 hours'")
    silenced = app.database.run(alerts.silence(row.id, until, actor="ann"))
    assert silenced is not None
    assert (silenced.silenced_by, silenced.silenced_until) == ("ann", until)
    advance(connection, AGAIN + 1)
    await watch.check()
    assert sent(connection) == ["opened"]
    advance(connection, 6 * 3600)
    await watch.check()
    assert sent(connection) == ["opened", "again"]
    assert app.database.run(alerts.silence(10**6, until)) is None


async def test_two_concurrent_watchers_send_an_alert_once(app: Sereno, connection: psycopg.Connection) -> None:
    rule(app, **ONLY)
    pause_sms(app)
    watchers = [AlertWatcher(app.url, app.settings, lambda: True) for _ in range(4)]
    for _ in range(3):
        await asyncio.gather(*[each.check() for each in watchers])
    resume_sms(app)
    advance(connection, 61)
    for _ in range(3):
        await asyncio.gather(*[each.check() for each in watchers])
    for each in watchers:
        await each.stop()
    assert sent(connection) == ["opened", "over"]


async def test_the_leading_scheduler_watches_and_the_next_leader_continues(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "POLL_INTERVAL", 0.05)
    rule(app, **ONLY)
    pause_sms(app)
    first = scheduler_with_alerts(app.url, app.settings)
    second = Scheduler(app.url, app.settings)
    watcher = AlertWatcher(app.url, app.settings, lambda: second.leads)
    second.attach(watcher)
    first.start()
    await auntil(lambda: sent(connection) == ["opened"])
    second.start()
    await auntil(lambda: watcher.rounds > 5)
    await first.stop()
    await auntil(lambda: second.leads)
    rounds = watcher.rounds
    await auntil(lambda: watcher.rounds > rounds + 5)
    assert sent(connection) == ["opened"]
    resume_sms(app)
    advance(connection, 61)
    await auntil(lambda: sent(connection) == ["opened", "over"])
    await second.stop()


PROGRAM = """
import sys
from sereno.cli.main import main
from sereno.monitoring.alerts import watcher as alerts
alerts.POLL_INTERVAL = 0.05
main(["scheduler"], prog_name="sereno")
"""


async def test_a_killed_leader_loses_no_alert(app: Sereno, connection: psycopg.Connection) -> None:
    rule(app, **ONLY)
    pause_sms(app)
    environment = {**os.environ, "SERENO_DATABASE_URL": app.url, "SERENO_KEEP_LOGS": "off"}
    leader = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, env=environment, stdout=subprocess.DEVNULL
    )
    try:
        await auntil(lambda: sent(connection) == ["opened"], timeout=60)
    finally:
        os.kill(leader.pid, signal.SIGKILL)
        await leader.wait()
    app.database.run(deliveries.pause_channel("fax", "", "broken"))
    advance(connection, 60)
    next_leader = Scheduler(app.url, app.settings)
    watcher = AlertWatcher(app.url, app.settings, lambda: next_leader.leads)
    await next_leader.run_once()
    assert next_leader.leads
    await watcher.check()
    await watcher.stop()
    await next_leader.stop()
    found = connection.execute("select subject, times from sereno.alerts order by id").fetchall()
    assert found == [("sms", 1), ("fax", 1)]
    assert sent(connection) == ["opened", "opened"]


async def test_a_failing_rule_or_query_does_not_affect_others(
    app: Sereno, watch: AlertWatcher, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(app, "a-good", **ONLY)
    rule(app, "b-broken")
    rule(app, "c-good", **ONLY)
    connection.execute("update sereno.alert_rules set targets = '[1]' where name = 'b-broken'")
    pause_sms(app)
    rule(app, "d-dead", kinds=["job.dead"])
    app.database.run(
        follow("d-dead", ConditionSnapshot([condition("job.dead", "work", "bad", "", count=1, task="work")], set()))
    )
    advance(connection, 3700)

    def fail(_tenant: str | None, _late: float) -> Any:
        raise psycopg.errors.InternalError("a table is broken")

    queries = [each._replace(read=fail) if "job.dead" in each.kinds else each for each in condition_queries.QUERIES]
    monkeypatch.setattr(condition_queries, "QUERIES", tuple(queries))
    await watch.check()
    notified = connection.execute(
        "select rule from sereno.alerts where notified_at is not null order by rule"
    ).fetchall()
    assert [each for (each,) in notified] == ["a-good", "c-good", "d-dead"]
    errors: dict[str, Any] = dict(connection.execute("select name, error from sereno.alert_rules").fetchall())
    assert "ValidationError" in errors["b-broken"]
    assert (errors["a-good"], errors["d-dead"]) == (None, None)
    # An alert whose query failed is not resolved.
    assert one(connection, "select resolved_at from sereno.alerts where rule = 'd-dead'") is None


async def test_a_log_rule_counts_matching_lines(
    app: Sereno, watch: AlertWatcher, connection: psycopg.Connection
) -> None:
    rule(app, "log", log=LogRule(level="warning", event="job.dead", count=3, within=300), task="work")

    def say(level: str = "error", event: str = "job.dead", task: str = "work") -> None:
        connection.execute(
            "insert into sereno.logs (at, level, event, message, task) values (sereno.now(), %s, %s, 'x', %s)",
            [level, event, task],
        )

    say()
    say()
    say(level="info")
    say(event="job.other")
    say(task="another")
    await watch.check()
    await watch.check()
    assert sent(connection) == [], "each line counts once"
    say(level="critical")
    await watch.check()
    await watch.check()
    assert sent(connection) == ["opened"]
    assert one(connection, "select words from sereno.alerts") == "3 log lines within 5 m: warning, job.dead"
    advance(connection, 301)
    await watch.check()
    advance(connection, 61)
    await watch.check()
    assert sent(connection) == ["opened", "over"]
    say()
    say()
    await watch.check()
    assert sent(connection) == ["opened", "over"]


# Sending


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task
    def work() -> None: ...

    return work


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


# Rules


async def test_declared_rules_do_not_overwrite_changes_of_an_operator(
    app: Sereno, work: Any, connection: psycopg.Connection
) -> None:
    address = "https://discord.com/api/webhooks/1/x"
    app.alerts.rule("late", kinds=["queue.late"], to=[("discord", address)], lasting="5m")
    with pytest.raises(InvalidAddress):
        app.alerts.rule("wrong", to=[("discord", "https://example.com/")])

    def written() -> Any:
        return one(connection, "select for_seconds from sereno.alert_rules where name = 'late'")

    async with app.working():
        await auntil(lambda: written() == 300)
    app.alerts.rule("late", kinds=["queue.late"], to=[("discord", address)], lasting="6m")
    async with app.working():
        await auntil(lambda: written() == 360)
    rule(app, "late", for_seconds=5)
    async with app.working():
        assert written() == 5


def test_an_address_is_masked_and_can_be_retained(app: Sereno, connection: psycopg.Connection) -> None:
    hook = "https://discord.com/api/webhooks/1/very-secret"
    signed = AlertTarget(channel="webhook", address="https://example.com/a", keys={"secrets": [SECRET]})
    rule(app, targets=[AlertTarget(channel="discord", address=hook), signed])
    (line,) = app.database.run(alerts.list_rules())
    assert [(to.channel, to.address, to.keys) for to in line.to] == [
        ("discord", "https://discord.com/…", []),
        ("webhook", "https://example.com/…", ["secrets"]),
    ]
    shown = [AlertTarget(channel=to.channel, address=to.address) for to in line.to]
    rule(app, targets=shown[::-1], level="bad")
    (row,) = app.database.run(store.rules())
    assert [(to.address, to.keys) for to in row.targets] == [
        ("https://example.com/a", {"secrets": [SECRET]}),
        (hook, {}),
    ]
    with pytest.raises(InvalidArguments, match="write it in full"):
        rule(app, targets=[AlertTarget(channel="discord", address="https://other.com/…")])
    audit = one(connection, "select string_agg(detail::text, ' ') from sereno.audit")
    assert "very-secret" not in audit
    assert SECRET not in audit


def test_disabling_or_removing_a_rule_resolves_its_alerts(app: Sereno, connection: psycopg.Connection) -> None:
    found = condition("job.dead", "work", "bad", "", count=1, task="work")
    for stop in (lambda: rule(app, enabled=False), lambda: app.database.run(alerts.remove_rule("ops"))):
        rule(app)
        app.database.run(follow("ops", ConditionSnapshot([found], set())))
        assert one(connection, "select count(*) from sereno.alerts where resolved_at is null") == 1
        stop()
        assert one(connection, "select count(*) from sereno.alerts where resolved_at is null") == 0
    assert sent(connection) == ["opened", "opened"]
    assert not app.database.run(alerts.remove_rule("ops"))


GOOD: dict[str, Any] = {"name": "a", "targets": [AlertTarget(channel="discord", address="x")]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "x" * 101},
        {"targets": []},
        {"targets": [AlertTarget(channel="", address="x")]},
        {"targets": [AlertTarget(channel="discord", address="x\x00")]},
        {"targets": [AlertTarget(channel="discord", address="\ud800")]},
        {"targets": [AlertTarget(channel="discord", address="x", keys={"a": "x" * 5000})]},
        {"kinds": []},
        {"kinds": ["queue.lat"]},
        {"level": "awful"},
        {"tenant": ""},
        {"for_seconds": -1},
        {"for_seconds": float("nan")},
        {"again_seconds": 1},
        {"note": "x" * 501},
    ],
    ids=str,
)
def test_invalid_rules_are_refused(wrong: dict[str, Any]) -> None:
    assert checked(AlertRule(**GOOD))
    with pytest.raises(InvalidArguments):
        checked(AlertRule(**GOOD | wrong))


# Decisions for random sequences of conditions

SUBJECTS = st.sampled_from(["a", "b"])
MOMENTS = st.lists(st.tuples(st.sets(SUBJECTS), st.integers(1, 4000)), max_size=30)


@given(moments=MOMENTS, lasts=st.sampled_from([0, 30, 600]), again=st.sampled_from([60, 14400]))
def test_messages_of_each_subject_are_in_a_valid_order(
    moments: list[tuple[set[str], int]], lasts: int, again: int
) -> None:
    """Opened first, repeated only while open and not too soon, resolved only once and after it was sent."""
    rule_ = AlertRule(**GOOD, for_seconds=lasts, again_seconds=again)
    now, known = NOW, dict[str, Alert]()
    messages: dict[str, list[tuple[str, datetime]]] = {"a": [], "b": []}
    for present, passed in moments:
        now += timedelta(seconds=passed)
        seen = [condition("job.dead", subject, "warn", "") for subject in sorted(present)]
        for step in decide(rule_, list(known.values()), seen, (), now):
            if step.notification is not None:
                messages[step.subject].append((step.notification, now))
            _apply(known, step, now)
        known = {
            subject: alert
            for subject, alert in known.items()
            if alert.resolved_at is None or now - alert.resolved_at < timedelta(hours=1)
        }
    for lines in messages.values():
        _check_order(lines, again)


def _apply(known: dict[str, Alert], step: Any, now: datetime) -> None:
    before = known.get(step.subject)
    if step.forgotten:
        del known[step.subject]
        return
    if step.condition is None:
        assert before is not None
        if step.resolved:
            known[step.subject] = _changed(before, resolved_at=now)
        return
    is_new = before is None or before.resolved_at is not None
    notified_at = now if step.notification else None if is_new or before is None else before.notified_at
    known[step.subject] = Alert(
        id=1,
        kind=step.kind,
        subject=step.subject,
        level=step.condition.level,
        opened_at=step.opened_at,
        last_seen_at=now,
        notified_at=notified_at,
        openings=step.openings,
    )


def _changed(alert: Alert, **values: Any) -> Alert:
    return msgspec.structs.replace(alert, **values)


def _check_order(lines: list[tuple[str, datetime]], again: int) -> None:
    for (before, at), (after, then) in itertools.pairwise(lines):
        assert after in {"opened": ("again", "over"), "again": ("again", "over"), "over": ("opened",)}[before]
        if after == "again":
            assert (then - at).total_seconds() >= again
        if after == "over":
            assert then - at >= calm(1)
    assert not lines or lines[0][0] == "opened"


def test_alerts_of_a_failed_query_are_not_resolved() -> None:
    long_ago = NOW - timedelta(days=1)
    alert = Alert(
        id=1, kind="job.dead", subject="a", level="bad", opened_at=long_ago, last_seen_at=long_ago, notified_at=long_ago
    )
    nothing: list[AlertCondition] = []
    assert decide(AlertRule(**GOOD), [alert], nothing, {"job.dead"}, NOW) == []
    (step,) = decide(AlertRule(**GOOD), [alert], nothing, {"queue.late"}, NOW)
    assert (step.resolved, step.notification) == (True, "over")
