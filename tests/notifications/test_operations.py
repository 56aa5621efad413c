"""`why` for notifications: each sentence names the deciding row or setting."""

from datetime import UTC, timedelta

import psycopg
import pytest

from sereno import QuietHours, Sereno, in_app
from sereno.channels.outcome import Delivered, Down, Failed, Outcome, Retryable
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.filters import DeliveryFilter
from sereno.jobs.limits.why import moment
from sereno.notifications import operations as notifications
from sereno.notifications.deliveries import lists
from sereno.notifications.why import EventKind, why_notification
from tests.database.plans import accesses, plan
from tests.facts import one
from tests.notifications.conftest import Pager, Tender

KNOWN = {"tender.published": EventKind("tender.published", ["pager"], "tenders")}


class NotificationApp:
    """An application whose deliveries are sent by the test."""

    def __init__(self, app: Sereno) -> None:
        self.app, self.pager = app, Pager()
        self.published = app.event("tender.published", Tender, channels=[self.pager], category="tenders")

    async def publish(self, code: str, to: list[str] | None = None, outcome: Outcome | None = None) -> int:
        """Create an event, fan it out and send it. Return its id."""
        self.pager.outcomes = {} if outcome is None else {"a7": outcome}
        event = await self.published.anotify(Tender(code), subject=code, to=to)
        await self.app.notifications.fanout.fan_out(event)
        await self.app.notifications.sender.deliver(1, "pager", "", -2)
        return event

    def why(self, key: str = "user:7", kind: str = "tender.published", **more: object) -> str:
        return " ".join(self.app.database.run(why_notification(key, kind, **more)))  # type: ignore[arg-type]  # as a caller would


@pytest.fixture
def notifying(app: Sereno) -> NotificationApp:
    app.recipients.upsert("user:7", {"pager": "a7"}, zone="UTC")
    return NotificationApp(app)


async def test_each_delivery_state_has_a_sentence(notifying: NotificationApp, connection: psycopg.Connection) -> None:
    cases: list[tuple[Outcome, str]] = [
        (Delivered(), "delivered; it was sent at"),
        (Failed("too_big", "4 MB"), "it failed permanently: refused (too_big: 4 MB); to send it again: sereno"),
        (Retryable("busy"), "from now, after 1 try (busy)"),
    ]
    for number, (outcome, _) in enumerate(cases):
        await notifying.publish(f"T{number}", ["user:7"], outcome)
    text = notifying.app.database.run(why_notification("user:7", "tender.published"))
    for (_, words), sentence in zip(reversed(cases), text, strict=True):
        assert words in sentence
    for state, words in {
        "sending": "it is being sent by job",
        "sent": "the provider accepted it",
        "read": "it was read",
        "bounced": "it bounced",
        "invalid": "does not know the address",
        "expired": "it expired at",
        "dead": "it is dead",
        "unknown": "may have been sent, the outcome is unknown",
    }.items():
        connection.execute("update sereno.deliveries set state = %s", [state])
        assert words in notifying.why()


async def test_a_preference_that_decided_is_named(notifying: NotificationApp) -> None:
    await notifying.app.recipients.aprefer(None, category="tenders", condition={"region": "V"})
    await notifying.publish("T1", ["user:7"])
    assert "condition, by the general default for category tenders" in notifying.why()
    await notifying.app.recipients.aprefer("user:7", event="tender.published", wanted=False)
    await notifying.publish("T2", ["user:7"])
    assert "preference off, by the preference of user:7 for event tender.published" in notifying.why()
    await notifying.app.recipients.aprefer("user:7", event="tender.published", wanted=True)
    assert "preference off, which has changed since" in notifying.why()


async def test_a_recipient_without_a_broadcast_delivery_gets_the_reason(notifying: NotificationApp) -> None:
    await notifying.app.recipients.aprefer("user:7", wanted=False)
    event = await notifying.publish("T1")
    text = notifying.why()
    assert f"Event {event} (T1)" in text
    assert "without user:7 (by pager: preference off, by the preference of user:7 for everything)" in text
    assert "If it happened now, by pager: not sent, preference off" in text
    await notifying.app.recipients.aupsert("late", {"pager": "x"})
    assert "late did not exist yet" in notifying.why("late")


async def test_an_event_that_is_not_fanned_out_yet_is_explained(
    notifying: NotificationApp, connection: psycopg.Connection
) -> None:
    soon = one(connection, "select sereno.now()") + timedelta(hours=1)
    await notifying.published.anotify(Tender("T1"), subject="T1", at=soon)
    assert "it is scheduled for" in notifying.why()
    await notifying.published.anotify(Tender("T2"), subject="T2")
    assert "still being created" in notifying.why()


async def test_a_recipient_outside_the_audience_gets_the_outlook(notifying: NotificationApp) -> None:
    await notifying.app.recipients.aupsert("user:8", {"pager": "a8"})
    event = await notifying.publish("T1", ["user:8"])
    text = notifying.why()
    assert f"in the audience of no recent tender.published: the newest, event {event}" in text
    assert "names 1 other" in text
    assert "by pager: it would be sent immediately" in text


def test_the_outlook_names_the_setting_that_would_decide_now(
    notifying: NotificationApp, connection: psycopg.Connection
) -> None:
    recipients = notifying.app.recipients
    now = one(connection, "select sereno.now()").astimezone(UTC)
    plain = "There was no recent event tender.published. If it happened now, by pager: it would be sent immediately."
    assert notifying.why(known=KNOWN) == plain
    recipients.prefer("user:7", category="tenders", wanted=True, condition={"region": "V"})
    assert 'only if {"region": "V"} holds, by the preference of user:7 for category tenders' in notifying.why(
        known=KNOWN
    )
    start, end = (f"{(now.hour + hours) % 24:02}:00" for hours in (-1, 2))
    recipients.prefer("user:7", quiet=QuietHours(start, end))
    until = (now + timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    assert f"it would wait for quiet hours to end at {moment(until)}" in notifying.why(known=KNOWN)
    critical = {"alarm": EventKind("alarm", ["pager"], critical=True)}
    assert "sent immediately, it is critical." in notifying.why(kind="alarm", known=critical)
    on_request = {"alarm": EventKind("alarm", ["pager"], opt_in=True)}
    assert "the event itself, which is opt-in" in notifying.why(kind="alarm", known=on_request)
    notifying.app.database.run(notifications.pause_channel("pager", "they are down"))
    text = notifying.why(known=KNOWN)
    assert "the channel pager has been paused since" in text
    assert "(they are down); to resume it: sereno channel resume pager" in text
    recipients.unsubscribe("user:7", "pager", "a7")
    assert "no active address: … is unsubscribed: by the recipient" in notifying.why(known=KNOWN)
    email = {"b": EventKind("b", ["email", "in_app"])}
    assert "the recipient has no address for email" in notifying.why(kind="b", known=email)


async def test_a_pending_delivery_of_a_paused_channel_names_the_pause(notifying: NotificationApp) -> None:
    await notifying.publish("T1", ["user:7"], Down("InvalidCredentials", "key expired"))
    assert "it waits: the channel pager has been paused" in notifying.why()


def test_unknown_event_types_and_recipients_are_explained(notifying: NotificationApp) -> None:
    assert "There is no event type 'tender.publishd': did you mean" in notifying.why(
        kind="tender.publishd", known=KNOWN
    )
    assert "declare it with app.event" in notifying.why(kind="tender.publishd")
    assert "There is no recipient missing without a tenant" in notifying.why("missing", known=KNOWN)
    assert "in the tenant r42" in notifying.why(tenant="r42", known=KNOWN)
    with pytest.raises(InvalidArguments):
        notifying.why("a\x00b")


async def test_an_inbox_delivery_shows_whether_it_was_read(app: Sereno) -> None:
    news = app.event("news", Tender, channels=[in_app])
    event = await news.anotify(Tender("T1"), to="user:7")
    await app.notifications.fanout.fan_out(event)
    await app.notifications.sender.deliver(1, "in_app", "", -2)
    words = await app.database.arun(why_notification("user:7", "news"))
    assert "by in_app: it has been in the inbox since" in words[0]
    assert "unread" in words[0]
    await app.inbox.amark("user:7", "read")
    assert "it was read" in (await app.database.arun(why_notification("user:7", "news")))[0]


def test_masked_addresses_show_only_their_ends() -> None:
    assert notifications.masked("ana@example.lv") == "ana….lv"
    assert notifications.masked("+37120000000") == "+37…000"
    assert notifications.masked("abc") == "…"
    assert all(len(notifications.masked("x" * length)) <= length // 2 + 1 for length in range(1, 200))


@pytest.mark.slow
async def test_why_works_in_another_schema(database_url: str) -> None:
    app = Sereno(database_url, schema="elsewhere")
    app.migrate()
    notifying = NotificationApp(app)
    app.recipients.upsert("user:7", {"pager": "a7"}, data={"name": "Ana"})
    event = await notifying.publish("T1", ["user:7"])
    run = app.database.run
    assert run(notifications.show_event(event)).total.value == 1
    (line,) = run(notifications.list_deliveries(DeliveryFilter(recipient="user:7")))
    assert run(notifications.show_delivery(line.id)).delivery.address == "a7"
    assert bytes(run(notifications.show_recipient("user:7")).recipient.data) == b'{"name": "Ana"}'
    assert [each.channel for each in run(notifications.list_channels(["email"]))] == ["email", "pager"]
    with pytest.raises(ConfigurationError, match="no delivery has the id"):
        run(notifications.show_delivery(line.id + 1))
    await app.aclose()


@pytest.mark.slow
def test_lists_use_an_index(connection: psycopg.Connection) -> None:
    """With a table that is large enough for the planner to choose an index."""
    connection.execute(
        "insert into sereno.events (type, payload, channels, key) "
        "select 'a', '{}', '{p}', g from generate_series(1, 200) g"
    )
    connection.execute("insert into sereno.recipients (key) select 'user:' || g from generate_series(1, 100) g")
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, due_at) "
        "select e.id, r.id, 'p', sereno.now() from sereno.events e, sereno.recipients r"
    )
    connection.execute("analyze")
    for wanted in (DeliveryFilter(), DeliveryFilter(event=7), DeliveryFilter(recipient="user:7")):
        statement = next(lists.deliveries(wanted, before=None, limit=50, window=1000))
        top = plan(connection, "notifications/deliveries/lists", "list", statement.params)
        assert "Seq Scan" not in {access.how for access in accesses(top, "deliveries")}, wanted
    top = plan(connection, "notifications/queries", "deliveries_for", {"events": [1, 2], "recipient": 7, "most": 200})
    assert "Seq Scan" not in {access.how for access in accesses(top, "deliveries")}
