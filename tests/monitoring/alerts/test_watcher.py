"""Alerts are sent once, repeated while open, and resolved once, also when the leading scheduler changes or dies."""

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.monitoring.alerts import condition_queries
from sereno.monitoring.alerts import operations as alerts
from sereno.monitoring.alerts import watcher as engine
from sereno.monitoring.alerts.condition import condition
from sereno.monitoring.alerts.rule import AGAIN, LogRule
from sereno.monitoring.alerts.watcher import AlertWatcher, ConditionSnapshot, follow
from sereno.monitoring.scheduler import monitored_scheduler
from sereno.notifications.deliveries import store as deliveries
from sereno.schedules.scheduler import Scheduler
from tests.facts import advance, auntil, one
from tests.monitoring.alerts.alert_steps import ONLY, pause_sms, resume_sms, rule, sent


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_the_leading_scheduler_watches_and_the_next_leader_continues(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "POLL_INTERVAL", 0.05)
    rule(app, **ONLY)
    pause_sms(app)
    first = monitored_scheduler(app.url, app.settings)
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


@pytest.mark.slow
@pytest.mark.quick
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


@pytest.mark.slow
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
