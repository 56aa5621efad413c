"""For how long messages are collected, as each recipient chose: the fan-out, and the same in Python."""

from typing import Any

import psycopg
import pytest

from sereno import Digest, QuietHours, Sereno
from sereno.database.statement import queries
from sereno.errors import ConfigurationError
from sereno.notifications.event_types import kind_of
from sereno.notifications.recipients.digest_choices import collected_for
from sereno.notifications.recipients.preference import Preference
from sereno.notifications.why import declared_kind, why_notification
from tests.database.plans import nodes
from tests.facts import advance, one
from tests.notifications.conftest import Pager, States, Tender
from tests.notifications.deliveries.test_outcomes import Phone
from tests.notifications.deliveries.test_store import add_recipients, digest_event, publish, run_send_job, titles

HOUR, DAY, WEEK = 3600, 86400, 604800


def collected(connection: psycopg.Connection, channel: str = "pager") -> dict[str, int]:
    """Return for each recipient for how many seconds their newest message is collected; 0: it is in no digest."""
    rows = connection.execute(
        "select distinct on (key) key, round(extract(epoch from due_at - d.created_at)), digest is not null "
        "from sereno.deliveries d join sereno.recipients r on r.id = recipient_id where channel = %s "
        "order by key, d.id desc",
        [channel],
    ).fetchall()
    assert all((seconds > 0) == is_collected for _, seconds, is_collected in rows)
    return {key: int(seconds) for key, seconds, _ in rows}


async def test_each_recipient_and_channel_has_the_chosen_time(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    published = app.event(
        "tender.published", Tender, channels=[pager, Phone()], category="tenders", digest=Digest("15m")
    )
    for key in ("at once", "declared", "default", "hourly", "mixed", "other", "weekly"):
        await app.recipients.aupsert(key, {"pager": key, "phone": "+1"}, tenant="t")
    app.recipients.prefer(None, tenant="t", category="tenders", channel="phone", digest="2h")
    app.recipients.prefer("at once", tenant="t", digest=0)
    app.recipients.prefer("hourly", tenant="t", category="tenders", digest="1h")
    app.recipients.prefer("hourly", tenant="t", digest=DAY)
    app.recipients.prefer("mixed", tenant="t", event="tender.published", digest=DAY)
    app.recipients.prefer("mixed", tenant="t", event="tender.published", channel="pager", digest=0)
    app.recipients.prefer("other", tenant="t", category="offers", digest=DAY)
    app.recipients.prefer("weekly", tenant="t", digest="7d")
    event = await published.anotify(Tender("T1"), subject="T1", tenant="t")
    await app.notifications.fanout.fan_out(event)
    same = {"at once": 0, "hourly": HOUR, "weekly": WEEK}
    assert collected(connection) == same | {"declared": 900, "default": 900, "mixed": 0, "other": 900}
    phone = {"declared": 2 * HOUR, "default": 2 * HOUR, "mixed": DAY, "other": 2 * HOUR}
    assert collected(connection, "phone") == same | phone


async def test_python_decides_the_time_as_the_fan_out_does(
    app: Sereno, connection: psycopg.Connection, pager: Pager, subtests: pytest.Subtests
) -> None:
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "critical": {"critical": True},
        "brief": {"ttl": "2h"},
        "briefer": {"ttl": "20m"},
        "escalates": {"channels": [pager.then(Phone(), after="1h", unless="sent")], "ttl": "8d"},
    }
    chosen: dict[str, float | None] = {"default": None, "at once": 0, "1m": 60, "1h": HOUR, "1d": DAY, "7d": WEEK}
    await add_recipients(app, *chosen)
    default = Preference(channel="pager", digest=5 * HOUR)
    app.recipients.prefer(None, channel="pager", digest="5h")
    for key, seconds in chosen.items():
        app.recipients.prefer(key, category="tenders", digest=seconds)
    for name, given in options.items():
        kind: dict[str, Any] = {"channels": [pager], "category": "tenders", "digest": Digest("15m"), **given}
        await publish(app, app.event(name, Tender, **kind), name)
        definition = app.notifications.definitions[name]
        for key, seconds in chosen.items():
            rows = [default, Preference(recipient=key, category="tenders", digest=seconds)]
            with subtests.test(event=name, recipient=key):
                message_kind = kind_of(definition, app.channels.resolve)
                assert collected_for(rows, message_kind, ["pager"]) == {collected(connection)[key]}
        # Windows of one event type are apart from those of the others.
    assert collected(connection) == {"default": 1800, "at once": 0, "1m": 60, "1h": 1800, "1d": 1800, "7d": 1800}


def test_a_digest_ends_before_its_messages_expire_or_escalate(app: Sereno, pager: Pager) -> None:
    escalating = {"channels": [pager.then(Phone(), after="15m")]}
    for given, words in (
        ({"channels": [pager], "ttl": "15m"}, "for 15 m, but they expire after 15 m: none would be sent"),
        (escalating, "for 15 m, but they escalate from pager to phone after 15 m, before pager has sent"),
    ):
        kind: dict[str, Any] = {"digest": Digest("15m"), **given}
        with pytest.raises(ConfigurationError, match=words):
            app.event("tender.published", Tender, **kind)


async def test_a_choice_holds_for_later_messages(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    published = digest_event(app, pager)
    await add_recipients(app, "a")
    app.recipients.prefer("a", digest="1d")
    await publish(app, published, "T1", "T2")
    app.recipients.prefer("a", digest=0)
    await publish(app, published, "T3")
    await run_send_job(app)
    assert titles(pager) == ["T3"], "at once, by itself, without what is collected"
    app.recipients.prefer("a", digest="1h")
    await publish(app, published, "T4")
    app.recipients.prefer("a", digest="7d")
    await publish(app, published, "T5")
    advance(connection, HOUR + 1)
    await run_send_job(app)
    assert titles(pager) == ["T3", "T1 T2 T4 T5"], "a sooner message takes along what is collected"
    assert [row[2] for row in states()].count("sent") == 2
    advance(connection, WEEK)
    await run_send_job(app)
    assert len(pager.sent) == 2


async def test_a_message_at_once_waits_for_the_end_of_quiet_hours(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    published = digest_event(app, pager)
    await app.recipients.aupsert("a", {"pager": "a"}, zone="UTC")
    hour = one(connection, "select extract(hour from sereno.now() at time zone 'UTC')::integer")
    start, end = (f"{(hour + hours) % 24:02}:00" for hours in (-1, 2))
    app.recipients.prefer("a", quiet=QuietHours(start, end), digest=0)
    await publish(app, published, "T1", "T2")
    await run_send_job(app)
    assert titles(pager) == []
    advance(connection, 2 * HOUR)
    await run_send_job(app)
    assert sorted(titles(pager)) == ["T1", "T2"]


async def test_a_plain_event_does_not_look_for_choices(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    await add_recipients(app, "a")
    app.recipients.prefer("a", digest="1d")
    event = await published.anotify(Tender("T1"), subject="T1")
    sql = f"explain (analyze, format json) {queries('notifications/events')['fan_out']}"
    values = {"event": event, "size": 100, "sizes": "{}", "queue": "notifications"}
    with connection.transaction(force_rollback=True):
        found = connection.execute(sql.encode(), values).fetchone()
    assert found is not None
    own = [
        each
        for each in nodes(found[0][0]["Plan"])
        if each.get("Relation Name") == "preferences" and "digest_seconds IS NOT NULL" in str(each.get("Filter"))
    ]
    assert [each["Actual Loops"] for each in own] == [0, 0]
    await app.notifications.fanout.fan_out(event)
    assert collected(connection) == {"a": 0}


async def test_why_explains_for_how_long_messages_are_collected(
    app: Sereno, connection: psycopg.Connection, pager: Pager
) -> None:
    await add_recipients(app, "a")
    published = digest_event(app, pager)
    known = {"tender.published": declared_kind(app.notifications.definitions["tender.published"], app.channels.resolve)}

    def why() -> str:
        return " ".join(app.database.run(why_notification("a", "tender.published", known=known)))

    assert "it would be collected with others of its digest for 15 m, as the event declares" in why()
    app.recipients.prefer("a", channel="pager", digest="1h")
    assert "for 1 h, by the preference of a for channel pager" in why()
    await publish(app, published, "T1")
    text = why()
    assert "it is collected with others of its digest until" in text
    assert "from now; the preference of a for channel pager says 1 h." in text
    app.recipients.prefer("a", channel="pager", digest=0)
    assert "the preference of a for channel pager says at once" in why()
    connection.execute("delete from sereno.deliveries")
    assert "it would be sent immediately" in why()
