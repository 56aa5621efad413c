"""What recipients do with a message moves its delivery forward; a complaint or an unsubscription ends the address."""

from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.channels.outcome import Receipt, ReceiptOutcome
from sereno.database.statement import run
from sereno.notifications.deliveries import receipt_store
from tests.facts import one
from tests.notifications.conftest import Pager, States, Tender
from tests.notifications.deliveries.test_outcomes import (
    add_recipients,
    delivery_ids,
    delivery_states,
    publish,
    run_send_job,
)

# Receipts of one message, the state of the delivery, and the state of the address.
REPORTS: dict[tuple[ReceiptOutcome, ...], tuple[str, str]] = {
    ("clicked",): ("read", "active"),
    ("delivered", "clicked"): ("read", "active"),
    ("complained",): ("delivered", "unsubscribed"),
    ("delivered", "complained"): ("delivered", "unsubscribed"),
    ("read", "complained"): ("read", "unsubscribed"),
    ("bounced", "complained"): ("bounced", "unsubscribed"),
    ("invalid", "complained"): ("invalid", "unsubscribed"),
    ("complained", "invalid"): ("bounced", "unsubscribed"),
    ("delivered", "unsubscribed"): ("delivered", "unsubscribed"),
    ("unsubscribed", "clicked"): ("read", "unsubscribed"),
    ("failed", "unsubscribed"): ("failed", "unsubscribed"),
    ("delivered", "invalid"): ("bounced", "invalid"),
    ("delivered", "bounced"): ("bounced", "active"),
    ("read", "invalid"): ("read", "active"),
}


async def test_complaints_unsubscriptions_and_clicks_change_delivery_and_address(
    app: Sereno, connection: psycopg.Connection, pager: Pager, subtests: pytest.Subtests
) -> None:
    published = app.event("tender.published", Tender, channels=[pager])
    for code, (reports, expected) in enumerate(REPORTS.items()):
        connection.execute("truncate sereno.recipients, sereno.inbox, sereno.preferences cascade")
        await add_recipients(app, "a", "b")
        await publish(app, published, f"T{code}")
        await run_send_job(app)
        number = delivery_ids(connection)[-2]
        for number_of_report, outcome in enumerate(reports):
            receipt = Receipt(provider_id=f"p{number}", outcome=outcome, id=f"r{code}.{number_of_report}")
            await app.notifications.receipts.apply("pager", "", [receipt])
        with subtests.test(reports=reports):
            assert one(connection, "select state from sereno.deliveries where id = %s", number) == expected[0]
            assert one(connection, "select state from sereno.addresses where address = 'a'") == expected[1]
            assert one(connection, "select state from sereno.addresses where address = 'b'") == "active"
            assert one(connection, "select count(*) from sereno.receipts where delivery_id = %s", number) == len(
                reports
            )


async def test_receipts_of_one_message_in_one_call_all_count(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    await run_send_job(app)
    (number,) = delivery_ids(connection)
    outcomes: tuple[ReceiptOutcome, ...] = ("complained", "delivered", "clicked", "read", "clicked")
    batch = [Receipt(provider_id=f"p{number}", outcome=each, id=f"r{at}") for at, each in enumerate(outcomes)]
    assert await app.notifications.receipts.apply("pager", "", batch) == 1
    assert await app.notifications.receipts.apply("pager", "", batch) == 0
    assert delivery_states(states) == ["read"]
    rows = connection.execute("select receipt_id, outcome from sereno.receipts order by receipt_id").fetchall()
    assert rows == [(f"r{at}", each) for at, each in enumerate(outcomes)]
    row = connection.execute("select state, reason from sereno.addresses").fetchone()
    assert row == ("unsubscribed", "reported as spam")
    await add_recipients(app, "a")
    assert one(connection, "select state from sereno.addresses") == "unsubscribed"


async def test_an_early_complaint_is_applied_with_its_reason(
    app: Sereno, connection: psycopg.Connection, pager: Pager, states: States
) -> None:
    await add_recipients(app, "a")
    published = app.event("tender.published", Tender, channels=[pager])
    await publish(app, published, "T1")
    (number,) = delivery_ids(connection)
    reports: tuple[ReceiptOutcome, ...] = ("failed", "unsubscribed", "complained")
    early = [Receipt(provider_id=f"p{number}", outcome=each, message="abuse", id=each) for each in reports]
    assert await app.notifications.receipts.apply("pager", "", early) == 0
    await run_send_job(app)
    assert (await app.notifications.sweeper.sweep())["early_receipts"] == 1
    assert delivery_states(states) == ["failed"]
    assert one(connection, "select reason from sereno.addresses") == "reported as spam: abuse"
    await publish(app, published, "T2")
    assert states()[-1][2:] == ("skipped", "no active address")


async def test_requested_receipts_that_say_delivered_change_only_what_waits_for_them(
    app: Sereno, connection: psycopg.Connection, pager: Pager, subtests: pytest.Subtests
) -> None:
    """They are applied by a statement of their own."""
    await add_recipients(app, "a")
    await publish(app, app.event("tender.published", Tender, channels=[pager]), "T1")
    await run_send_job(app)
    (number,) = delivery_ids(connection)
    name = f"p{number}"
    table: list[tuple[str, str, str]] = [
        *[("sent", name, "delivered"), ("unknown", name, "delivered")],
        *[(state, name, state) for state in ("delivered", "read", "bounced", "pending", "sending", "dead")],
        # Sent again since the request, with another id.
        ("sent", "p-later", "sent"),
    ]
    for before, provider_id, expected in table:
        changes: dict[str, Any] = {"state": before, "name": provider_id}
        connection.execute(
            "update sereno.deliveries set state = %(state)s, provider_id = %(name)s, error_code = '503'", changes
        )
        receipts = [Receipt(provider_id=name, outcome="delivered")] * 2
        applied = run(connection, receipt_store.apply("pager", "", receipts, [60.0], {name: [number]}))
        with subtests.test(before=before, provider_id=provider_id):
            assert one(connection, "select state from sereno.deliveries") == expected
            changed = before in ("sent", "unknown") and provider_id == name
            assert applied.moved == len(applied.received) == changed
            assert one(connection, "select error_code from sereno.deliveries") == (None if changed else "503")


def test_batches_whose_time_is_over_are_found_among_the_next_ones(connection: psycopg.Connection) -> None:
    for ends_in in (-1, 60, -1, -1):
        connection.execute(
            "insert into sereno.batches (purpose, channel, account, due_at, ends_at, deliveries) values "
            "('ask', 'pager', '', sereno.now() - interval '1 minute', sereno.now() + make_interval(secs => %s), '{}')",
            [ends_in],
        )
    for most, left in ((2, 3), (2, 2), (10, 1)):
        run(connection, receipt_store.stop_expired("pager", "", most=most))
        assert one(connection, "select count(*) from sereno.batches") == left
