"""Searches on the command line: in every list, and in bulk changes."""

import json

import psycopg
import pytest
from click.testing import Result

from sereno import Sereno
from sereno.error_text import FailureText
from sereno.jobs.queries import error_groups
from sereno.telemetry.metrics import MetricTally
from tests.cli.conftest import Command
from tests.facts import one

DELIVERIES = """with published as (
        insert into sereno.events (type, subject, payload, channels)
        values ('tender.published', 'T-1', '{"region": "RM"}', '{email}'), ('bill.paid', 'B-1', '{}', '{push}')
        returning id, type)
    insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at, error_code)
    select published.id, recipients.id, case type when 'bill.paid' then 'push' else 'email' end, 'failed', sereno.now(),
           'timeout'
    from published join sereno.recipients on (key = 'user:ana') = (type = 'tender.published')"""


@pytest.fixture
def filled(app: Sereno, connection: psycopg.Connection) -> None:
    app.recipients.upsert("user:ana", {"email": "ana@shop.example"}, locale="lv", data={"plan": "free"})
    app.recipients.upsert("user:bob", {}, locale="es")
    connection.execute(DELIVERIES.encode())
    cron, every = {"kind": "cron", "expression": "0 3 * * *"}, {"kind": "every", "interval": 60}
    for key, task, rule in (("menu:1", "menu", cron), ("close", "close", every)):
        connection.execute(
            "insert into sereno.schedules (key, task, rule, next_run_at) values (%s, %s, %s, sereno.now())",
            [key, task, json.dumps(rule)],
        )
    failed = MetricTally()
    for number, task in enumerate(("menu", "bill")):
        failed.failed(FailureText(f"00000000000{number}", task, "OSError", "Connection reset", ""), 1, None)
    app.database.run(error_groups.add(failed))


def found(result: Result, name: str) -> list[str]:
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    return [each[name] for each in (data["items"] if isinstance(data, dict) else data)]


def test_every_list_is_searched(sereno: Command, filled: None) -> None:
    wanted = "state:failed channel:email event:tender.* recipient:user:ana created:2d.."
    assert found(sereno("delivery", "list", wanted, "-o", "json"), "channel") == ["email"]
    assert found(sereno("delivery", "list", "-o", "json", "--", "-channel:email"), "channel") == ["push"]
    assert found(sereno("delivery", "list", "tender", "--channel", "push", "-o", "json"), "id") == []
    assert found(sereno("event", "list", "payload.region:RM", "-o", "json"), "type") == ["tender.published"]
    assert found(sereno("event", "list", "B-1", "--type", "tender.published", "-o", "json"), "type") == []
    for search in ("channel:email", "-locale:es", "data.plan:free"):
        assert found(sereno("recipient", "list", f"--search={search}", "-o", "json"), "key") == ["user:ana"]
    assert found(sereno("recipient", "list", "user:b*", "--search", "locale:lv", "-o", "json"), "key") == []
    assert found(sereno("schedule", "list", "--search", "kind:cron next:..tomorrow", "-o", "json"), "key") == ["menu:1"]
    assert found(sereno("schedule", "list", "clo*", "--search", "menu", "-o", "json"), "key") == []
    assert found(sereno("schedule", "list", "--search", "-kind:cron", "--soonest", "-o", "json"), "key") == ["close"]
    assert found(sereno("error", "list", "task:bill reset", "-o", "json"), "task") == ["bill"]
    assert "No error matches." in sereno("error", "list", "task:none", "-o", "table").output


def test_a_syntax_error_is_reported_with_its_position(sereno: Command, filled: None) -> None:
    for command in (
        ("delivery", "list", "stat:failed"),
        ("delivery", "requeue", "--dry-run", "--search", "stat:failed"),
        ("event", "list", "stat:failed"),
        ("recipient", "list", "--search", "stat:failed"),
        ("schedule", "list", "--search", "stat:failed"),
        ("schedule", "pause", "--search", "stat:failed", "--yes"),
        ("error", "list", "stat:failed"),
    ):
        result = sereno(*command)
        assert result.exit_code not in (0, 1), command
        assert 'at character 1 of the search: there is no field "stat"' in result.stderr, command


def test_all_matching_rows_are_changed(sereno: Command, filled: None, connection: psycopg.Connection) -> None:
    dry = sereno("delivery", "requeue", "--search", "error:timeout event:bill.*", "--dry-run")
    assert "Would requeue 1 delivery." in dry.output
    refused = sereno("schedule", "pause", "--search", "kind:cron")
    assert "this would pause every schedule that matches (kind:cron)" in refused.stderr
    assert "Paused: 1 schedule" in sereno("schedule", "pause", "--search", "kind:cron", "--yes").output
    assert one(connection, "select string_agg(key, ' ') from sereno.schedules where state = 'paused'") == "menu:1"
    assert "No schedule matched" in sereno("schedule", "delete", "--search", "kind:once", "--yes").output
    began = sereno("schedule", "delete", "--search", "state:paused", "--yes", "--background", "-o", "json")
    assert json.loads(began.stdout)["wanted"]["q"] == "state:paused"
    begun = sereno("delivery", "requeue", "--search", "event:bill.*", "--yes", "--background", "-o", "json")
    assert (json.loads(begun.stdout)["total"], json.loads(begun.stdout)["wanted"]["q"]) == (1, "event:bill.*")
