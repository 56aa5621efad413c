"""Searches of deliveries, events and recipients find exactly the matching rows."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from sereno.bulk import operations as bulk
from sereno.database.statement import Operation, run
from sereno.jobs.bulk import ClaimedBatch
from sereno.jobs.filters import DeliveryFilter
from sereno.notifications import operations as notifications
from sereno.notifications import queries
from sereno.notifications.deliveries import lists
from sereno.notifications.search_fields import DELIVERY_FIELDS, EVENT_FIELDS, RECIPIENT_FIELDS
from sereno.search.search_filter import search_params
from sereno.search.sql_terms import SearchParams
from sereno.search.syntax import InvalidSearch, SearchField
from tests.facts import one

# Tenant, type, subject, key, category, channels, payload, trace, age in days.
EVENTS: tuple[tuple[Any, ...], ...] = (
    ("", "tender.published", "T-1", "k1", "tenders", ["email"], {"region": "RM", "sum": {"eur": 42}}, "t-1", 9),
    ("r1", "tender.closed", "T-2", None, "tenders", ["email", "push"], {"region": "LV", "token": "hunter2"}, "t-2", 3),
    ("r2", "bill.paid", None, "100%", None, ["push"], {"list": [7, "x"]}, None, 0),
)
# Tenant, key, locale, zone, data, channels.
RECIPIENTS: tuple[tuple[Any, ...], ...] = (
    ("", "user:ana", "lv", "Europe/Riga", {"plan": "free", "pin": "1234"}, ["email", "push"]),
    ("r1", "user:bob", "es", "America/Lima", {"plan": "paid"}, ["push"]),
    ("r2", "shop", None, None, None, []),
)
# Event and recipient, channel, account, state, reason, error, provider id, attempts.
DELIVERIES: tuple[tuple[Any, ...], ...] = (
    (0, 0, "email", "", "failed", "no such mailbox", "550", "Mailbox unavailable", "p-1", 3),
    (1, 1, "push", "acme", "sent", None, None, None, "p-2", 1),
    (2, 2, "push", "", "skipped", "preference off", None, None, None, 0),
)
MAKE_EVENT = """insert into sereno.events
    (tenant, type, subject, key, category, channels, payload, trace, created_at, due_at, matched_at)
    values (%s, %s, %s, %s, %s, %s, %s, %s, sereno.now() - make_interval(days => %s), sereno.now() + interval '1 day',
            case when %s then sereno.now() end) returning id"""
MAKE_RECIPIENT = """insert into sereno.recipients (tenant, key, locale, zone, data, created_at)
    values (%s, %s, %s, %s, %s, sereno.now() - make_interval(days => %s)) returning id"""
MAKE_ADDRESS = (
    "insert into sereno.addresses (recipient_id, channel, address, state) values (%s, %s, %s, %s) returning id"
)
MAKE_DELIVERY = """insert into sereno.deliveries
    (event_id, recipient_id, channel, account, state, reason, error_code, error_message, provider_id, attempts, tenant,
     job_id, due_at, sent_at, created_at, changed_at)
    values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, sereno.now(), case when %s then sereno.now() end,
            sereno.now() - make_interval(days => %s), sereno.now() - make_interval(days => %s)) returning id"""


@pytest.fixture
def three_notifications(connection: psycopg.Connection) -> dict[str, list[int]]:
    """Create three events, recipients and deliveries; return their ids, in the order above."""
    days = [9, 3, 0]
    events = [
        one(connection, MAKE_EVENT, *row[:6], json.dumps(row[6]), *row[7:], place < 2)
        for place, row in enumerate(EVENTS)
    ]
    recipients = [
        one(connection, MAKE_RECIPIENT, *row[:4], None if row[4] is None else json.dumps(row[4]), days[place])
        for place, row in enumerate(RECIPIENTS)
    ]
    for recipient, row in zip(recipients, RECIPIENTS, strict=True):
        for channel in row[5]:
            one(connection, MAKE_ADDRESS, recipient, channel, f"{channel}-{recipient}", "active")
    one(connection, MAKE_ADDRESS, recipients[2], "email", "gone", "invalid")
    made = []
    for place, (event, recipient, *rest) in enumerate(DELIVERIES):
        more = [RECIPIENTS[recipient][0], 100 + place, place == 1, days[place], days[place]]
        made.append(one(connection, MAKE_DELIVERY, events[event], recipients[recipient], *rest, *more))
    return {"events": events, "recipients": recipients, "deliveries": made}


OF_DELIVERIES = (
    ("state:failed", "0"),
    ("state:failed,sent", "0 1"),
    ("-state:failed", "1 2"),
    ("channel:push", "1 2"),
    ("channel:em*", "0"),
    ("channel:*ail", "0"),
    ("channel:*us*", "1 2"),
    ("-channel:push", "0"),
    ("account:acme", "1"),
    ("account:*", "1"),
    ("event:tender.published", "0"),
    ("event:tender.*", "0 1"),
    ("event:tender", ""),
    ("subject:T-1,T-2", "0 1"),
    ("-subject:T-1", "1 2"),
    ("recipient:user:ana", "0"),
    ("recipient:user:*", "0 1"),
    ("recipient:ana", ""),
    ("tenant:r1", "1"),
    ("-tenant:*", "0"),
    ("reason:MAILBOX", "0"),
    ("reason:*", "0 2"),
    ("reason:mailbox*", ""),
    ("-reason:preference", "0 1"),
    ("error:unavailable", "0"),
    ('error:"550: Mailbox"', "0"),
    ("error:*", "0"),
    ("provider:p-1", "0"),
    ("provider:p-*", "0 1"),
    ("job:101", "1"),
    ("-job:100,101", "2"),
    ("attempts:>1", "0"),
    ("attempts:0", "2"),
    ("attempts:1..2", "1"),
    ("created:1d..", "2"),
    ("created:..1d", "0 1"),
    ("age:>5d", "0"),
    ("age:<1h", "2"),
    ("changed:4d..", "1 2"),
    ("sent:1h..", "1"),
    ("sent:..1h", ""),
    ("due:yesterday..", "0 1 2"),
    ("due:..2000-01-01", ""),
    ("PUSH", "1 2"),
    ("user:", None),
    ('"user:"', "0 1"),
    ("tender", "0 1"),
    ("t-2", "1"),
    ("-ana", "1 2"),
    ("user* -p-2", "0"),
    ("state:failed channel:email event:tender.* recipient:user:ana created:10d..", "0"),
    ("state:failed state:sent", ""),
)
OF_EVENTS = (
    ("type:tender.*", "0 1"),
    ("-type:tender.closed", "0 2"),
    ("subject:T-1", "0"),
    ("subject:T-*", "0 1"),
    ("-subject:*", "2"),
    ("key:100%", "2"),
    ("key:k_", ""),
    ("category:tenders", "0 1"),
    ("channel:push", "1 2"),
    ("-channel:email", "2"),
    ("tenant:r1,r2", "1 2"),
    ("trace:t-1", "0"),
    ("trace:t-*", "0 1"),
    ("trace:none", ""),
    ("trace:t-1 subject:T-2", ""),
    ("matched:yes", "0 1"),
    ("matched:no", "2"),
    ("critical:no", "0 1 2"),
    ("critical:yes", ""),
    ("note:*", ""),
    ("created:1d..", "2"),
    ("age:>5d", "0"),
    ("due:1h..tomorrow", "0 1 2"),
    ("due:yesterday..", "0 1 2"),
    ("due:..2000-01-01", ""),
    ("payload.region:RM", "0"),
    ("payload.sum.eur:42", "0"),
    ('payload.sum.eur:"42"', ""),
    ("-payload.region:RM", "1 2"),
    ("payload.list:7", "2"),
    ("payload.token:hunter2", "1"),
    ("TENDER", "0 1"),
    ("k1", "0"),
    ("paid", "2"),
)
OF_RECIPIENTS = (
    ("key:user:ana", "0"),
    ("key:user:*", "0 1"),
    ("-key:user:*", "2"),
    ("tenant:r1", "1"),
    ("tenant:r1 key:user:bob", "1"),
    ("tenant:r1 key:user:ana", ""),
    ("tenant:r2 key:shop,user:bob", "2"),
    ("-tenant:*", "0"),
    ("locale:lv,es", "0 1"),
    ("-locale:*", "2"),
    ("zone:Europe/Riga", "0"),
    ("zone:*Lima", "1"),
    ("channel:email", "0"),
    ("channel:push", "0 1"),
    ("-channel:*", "2"),
    ("created:..5d", "0"),
    ("created:1d..", "2"),
    ("changed:1h..", "0 1 2"),
    ("changed:..1h", ""),
    ("data.plan:free", "0"),
    ("-data.plan:free", "1 2"),
    ("data.pin:1234", "0"),
    ("USER", "0 1"),
    ("r2", "2"),
)


def parsed(text: str, fields: tuple[SearchField, ...]) -> SearchParams | None:
    return search_params(text, fields, datetime.now(UTC))


def check(cases: tuple[tuple[str, str | None], ...], ids: list[int], find: Callable[[str], list[int]]) -> None:
    """Check each case: the indexes of the rows that are found; None: refused."""
    assert sorted(find("")) == ids
    for text, places in cases:
        if places is None:
            with pytest.raises(InvalidSearch):
                find(text)
        else:
            assert sorted(find(text)) == [ids[int(place)] for place in places.split()], text


@pytest.mark.slow
def test_a_search_finds_matching_deliveries(
    connection: psycopg.Connection, three_notifications: dict[str, list[int]]
) -> None:
    def find(text: str) -> list[int]:
        wanted = DeliveryFilter(search_params=parsed(text, DELIVERY_FIELDS))
        found = [line.id for line in run(connection, notifications.list_deliveries(wanted))]
        # A bulk change affects the same rows, except in states that cannot be changed.
        count = run(connection, bulk.count_requeue(wanted)).value
        assert count == sum(number != three_notifications["deliveries"][1] for number in found), text
        return found

    check(OF_DELIVERIES, three_notifications["deliveries"], find)


def test_a_search_finds_deliveries_by_number(
    connection: psycopg.Connection, three_notifications: dict[str, list[int]]
) -> None:
    made, events = three_notifications["deliveries"], three_notifications["events"]
    cases = (
        (f"id:{made[0]}", "0"),
        (f"{made[0]}", "0"),
        (f"id:{made[0]},{made[2]}", "0 2"),
        (f"-id:{made[0]}", "1 2"),
        (f"-{made[0]}", "1 2"),
        (f"id:{made[0]} state:sent", ""),
        (f"event_id:{events[1]}", "1"),
        (f"event_id:{events[0]},{events[1]}", "0 1"),
        (f"id:{made[0]} event_id:{events[1]}", ""),
        ("id:999999999999999999", ""),
    )

    def find(text: str) -> list[int]:
        wanted = DeliveryFilter(search_params=parsed(text, DELIVERY_FIELDS))
        return [line.id for line in run(connection, notifications.list_deliveries(wanted))]

    check(cases, made, find)


def test_a_filter_and_a_search_of_deliveries_both_apply(
    connection: psycopg.Connection, three_notifications: dict[str, list[int]]
) -> None:
    made, events = three_notifications["deliveries"], three_notifications["events"]

    def find(text: str, **named: Any) -> list[int]:
        wanted = DeliveryFilter(**named, search_params=parsed(text, DELIVERY_FIELDS))
        return [line.id for line in run(connection, notifications.list_deliveries(wanted))]

    assert find("channel:push", tenant="r1") == [made[1]]
    assert find("tenant:r2", tenant="r1") == []
    assert find("state:sent", states=["failed"]) == []
    assert find("event:tender.*", recipient="user:bob", tenant="r1") == [made[1]]
    assert find("event:bill.*", recipient="user:bob", tenant="r1") == []
    assert find(f"event_id:{events[0]}", event=events[1]) == []
    assert find(f"id:{made[1]}", event=events[1]) == [made[1]]
    assert find(f"id:{made[1]}", recipient="user:ana") == []
    assert find(f"{made[1]}", tenant="r2") == []


def test_a_worker_requeues_the_deliveries_of_a_search(
    connection: psycopg.Connection, three_notifications: dict[str, list[int]]
) -> None:
    made = three_notifications["deliveries"]
    sent: list[int] = []

    def requeue(found: Sequence[int]) -> Operation[list[int]]:
        sent.extend(found)
        yield from ()
        return list(found)

    for text, expected in (("reason:mailbox age:>5d", made[:1]), (f"id:{made[2]}", made[2:]), ("event:none*", [])):
        sent.clear()
        wanted = DeliveryFilter(search_params=parsed(text, DELIVERY_FIELDS))
        begun = run(connection, bulk.begin_requeue(wanted, yes=True, actor="test"))
        assert begun.wanted["q"] == text
        selection, upper, at = connection.execute(
            "select selection::text, upper_id, created_at from sereno.bulk_operations where id = %s", [begun.id]
        ).fetchall()[0]
        taken = ClaimedBatch(
            begun.id, begun.action, selection, "{}", "{}", None, None, "test", 0, 0, None, 0, "", upper, at, False, 0.0
        )
        step = run(connection, bulk.changes(requeue)["delivery.requeue"](taken))
        assert (sent, step.done, step.place.ends) == (expected, len(expected), True), text


def test_a_search_finds_matching_events(
    connection: psycopg.Connection, three_notifications: dict[str, list[int]]
) -> None:
    made = three_notifications["events"]
    numbers = ((f"id:{made[0]}", "0"), (f"{made[1]}", "1"), (f"-{made[1]}", "0 2"), (f"id:{made[0]} type:bill.*", ""))

    def find(text: str) -> list[int]:
        return [
            line.id for line in run(connection, notifications.list_events(search_params=parsed(text, EVENT_FIELDS)))
        ]

    check((*OF_EVENTS, *numbers), made, find)
    theirs = notifications.list_events(tenant="r1", search_params=parsed("trace:t-1", EVENT_FIELDS))
    assert run(connection, theirs) == []


def test_a_search_finds_matching_recipients(
    connection: psycopg.Connection, three_notifications: dict[str, list[int]]
) -> None:
    def find(text: str) -> list[int]:
        return [
            line.id
            for line in run(connection, notifications.list_recipients(search_params=parsed(text, RECIPIENT_FIELDS)))
        ]

    check(OF_RECIPIENTS, three_notifications["recipients"], find)
    theirs = notifications.list_recipients("user:*", tenant="r1", search_params=parsed("-key:shop", RECIPIENT_FIELDS))
    assert [line.key for line in run(connection, theirs)] == ["user:bob"]


def test_a_search_without_an_index_tests_only_the_newest_rows(
    connection: psycopg.Connection, three_notifications: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an index it tests all rows. A page continues where the last one ended."""
    for module in (queries, lists):
        monkeypatch.setattr(module, "WINDOW", 2)
    made, events = three_notifications["deliveries"], three_notifications["events"]

    def deliveries(text: str, before: int | None = None) -> list[int]:
        wanted = DeliveryFilter(search_params=parsed(text, DELIVERY_FIELDS))
        return [line.id for line in run(connection, lists.deliveries(wanted, before=before, limit=1))]

    assert deliveries("event:tender.*") == [made[1]]
    assert deliveries("event:tender.*", made[1]) == [made[0]]
    assert deliveries("channel:email") == []
    assert deliveries(f"channel:email id:{made[0]}") == [made[0]]
    assert deliveries("channel:email state:failed") == deliveries("subject:T-1") == [made[0]]
    assert deliveries(f"channel:email event_id:{events[0]}") == [made[0]]

    def found(text: str) -> list[int]:
        return [
            line.id for line in run(connection, notifications.list_events(search_params=parsed(text, EVENT_FIELDS)))
        ]

    assert found("type:tender.published") == []
    assert found("subject:T-1") == found("trace:t-1") == found(f"id:{events[0]}") == [events[0]]


INVALID_SEARCHES = (
    ("stat:failed", 0, "did you mean state?"),
    ("state:fail", 6, "did you mean failed?"),
    ("channel:email attempts:many", 23, "is not a non-negative number"),
    ("id:one", 3, "is not a number"),
    ("created:sometime", 8, "is not a time"),
    ("created:2h", 8, "2h.. for since then"),
    ("age:3", 4, "for older or"),
    ("-created:2d..", 0, "reverse the comparison"),
    ("payload.code:42", 0, "no field"),
)


def test_an_invalid_search_of_deliveries_is_refused_with_its_position(subtests: pytest.Subtests) -> None:
    for text, at, message in INVALID_SEARCHES:
        with subtests.test(text=text):
            with pytest.raises(InvalidSearch) as caught:
                parsed(text, DELIVERY_FIELDS)
            assert caught.value.at == at
            assert message in str(caught.value)
