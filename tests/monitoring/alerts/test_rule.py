"""Rules of alerts: checked, stored, and the decisions that follow from them."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import Sereno
from sereno.errors import InvalidAddress, InvalidArguments
from sereno.monitoring.alerts import operations as alerts
from sereno.monitoring.alerts import store
from sereno.monitoring.alerts.condition import AlertCondition, condition
from sereno.monitoring.alerts.rule import Alert, AlertRule, AlertTarget, calm, checked, decide
from sereno.monitoring.alerts.watcher import ConditionSnapshot, follow
from tests.facts import auntil, one
from tests.monitoring.alerts.alert_steps import SECRET, rule, sent

NOW = datetime(2026, 11, 15, 3, tzinfo=UTC)


@pytest.mark.slow
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


WRONG: tuple[dict[str, Any], ...] = (
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
)


def test_invalid_rules_are_refused(subtests: pytest.Subtests) -> None:
    assert checked(AlertRule(**GOOD))
    for wrong in WRONG:
        with subtests.test(wrong=ascii(wrong)[:80]), pytest.raises(InvalidArguments):
            checked(AlertRule(**GOOD | wrong))


# Decisions for random sequences of conditions

SUBJECTS = st.sampled_from(["a", "b"])
MOMENTS = st.lists(st.tuples(st.sets(SUBJECTS), st.integers(1, 4000)), max_size=30)


@pytest.mark.slow
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
