"""`sereno alert`: conditions, alerts and rules."""

import json
from typing import Any

import psycopg

from sereno.monitoring.alerts.condition import condition
from sereno.monitoring.alerts.watcher import ConditionSnapshot, follow
from tests.cli.conftest import Command
from tests.facts import one
from tests.manual_worker import ManualWorker

URL = "https://discord.com/api/webhooks/1/very-secret"


def set_late(sereno: Command, *more: str) -> Any:
    return sereno("alert", "set", "late", "--kind", "queue.late", "--to", f"discord={URL}", "--for", "5m", *more)


def test_current_conditions_are_listed(sereno: Command, manual: ManualWorker) -> None:
    manual.enqueue(queue="mails")
    conditions = json.loads(sereno("alert", "now", "-o", "json").stdout)["items"]
    assert [(each["kind"], each["level"]) for each in conditions] == [("worker.none", "bad"), ("queue.unserved", "bad")]
    assert conditions[0]["words"] == "No worker is alive."
    assert "sereno worker -q mails" in sereno("alert", "now").stdout
    assert sereno("alert", "now", "--tenant", "r42", "-o", "jsonl").stdout == ""
    assert sereno("alert", "now", "--late", "soon").exit_code != 0


def test_a_rule_is_set_listed_tested_and_removed(
    sereno: Command, manual: ManualWorker, connection: psycopg.Connection
) -> None:
    made = set_late(sereno)
    assert made.exit_code == 0, made.output
    rules = sereno("alert", "rules")
    assert "discord=https://discord.com/…" in rules.stdout
    assert "queue.late" in rules.stdout
    assert "very-secret" not in made.output + rules.stdout
    assert one(connection, "select for_seconds from sereno.alert_rules") == 300
    tested = sereno("alert", "test", "late")
    assert int(tested.stdout) == one(connection, "select id from sereno.jobs where task = 'sereno.alert'")
    changed = sereno(
        "alert", "set", "late", "--to", "discord=https://discord.com/…", "--log-event", "job.dead", "--count", "5"
    )
    assert changed.exit_code == 0, changed.output
    assert one(connection, "select targets -> 0 ->> 'address' from sereno.alert_rules") == URL
    assert one(connection, "select log from sereno.alert_rules")["count"] == 5
    assert sereno("alert", "remove", "late").exit_code == 0
    for again in (sereno("alert", "remove", "late"), sereno("alert", "test", "late")):
        assert again.exit_code != 0
        assert "no alert rule 'late': see sereno alert rules" in again.output


def test_alerts_are_listed_and_silenced(sereno: Command, manual: ManualWorker, connection: psycopg.Connection) -> None:
    set_late(sereno)
    connection.execute("update sereno.alert_rules set for_seconds = 0")
    found = condition("queue.late", "a\x1b[31mb", "bad", "look", queue="a\x1b[31mb", ready=1, age="1 m")
    manual.app.database.run(follow("late", ConditionSnapshot([found], set())))
    (line,) = json.loads(sereno("alert", "list", "--open", "-o", "json").stdout)["items"]
    assert (line["rule"], line["times"]) == ("late", 1)
    assert "\x1b" not in sereno("alert", "list").stdout
    assert sereno("alert", "list", "--past", "-o", "jsonl").stdout == ""
    number = str(line["id"])
    assert sereno("alert", "silence", number, "--until", "2h").exit_code == 0
    assert one(connection, "select silenced_until > sereno.now() + interval '1 hour' from sereno.alerts")
    assert sereno("alert", "silence", number, "--off").exit_code == 0
    assert one(connection, "select silenced_until from sereno.alerts") is None
    assert sereno("alert", "silence", number).exit_code != 0
    assert "no open alert 999" in sereno("alert", "silence", "999", "--off").output


def test_invalid_alert_rules_are_refused(sereno: Command, manual: ManualWorker) -> None:
    for words in (
        ("a b", "--to", f"discord={URL}"),
        ("a", "--to", URL.replace("=", "")),
        ("a", "--to", f"discord={URL}", "--kind", "queue.lat"),
        ("a", "--to", f"discord={URL}", "--kind", "queue.late", "--log-event", "x"),
        ("a", "--to", f"discord={URL}", "--again", "1s"),
    ):
        answer = sereno("alert", "set", *words)
        assert answer.exit_code != 0, words
        assert "very-secret" not in answer.output
