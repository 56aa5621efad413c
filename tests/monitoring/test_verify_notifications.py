"""Each invariant of notifications is violated once and reported; a real run violates none."""

from typing import Any

import psycopg
import pytest

from sereno import Sereno, in_app
from sereno.channels.outcome import Invalid, Receipt, Retryable
from tests.facts import advance, auntil, one
from tests.monitoring.verify_steps import broken, broken_inside, undone
from tests.notifications.conftest import Pager, Tender

Connection = psycopg.Connection[Any]


@pytest.fixture
def event(connection: Connection) -> int:
    """Insert an event that was matched long ago."""
    found: int = one(
        connection,
        "insert into sereno.events (type, payload, channels, due_at, matched_at) "
        "values ('tender.published', '{}', '{pager}', sereno.now() - interval '1 hour', sereno.now()) returning id",
    )
    return found


@pytest.fixture
def delivery(app: Sereno, connection: Connection, event: int) -> int:
    """Insert a pending delivery that is not overdue."""
    app.recipients.upsert("u", {"pager": "a"})
    found: int = one(
        connection,
        "insert into sereno.deliveries (event_id, recipient_id, address_id, channel, due_at) "
        "select %s, recipient_id, id, channel, sereno.now() from sereno.addresses returning id",
        event,
    )
    assert broken(app) == {"waiting_is_queued": [found]}
    _batch(connection, "send")
    assert broken(app) == {}
    return found


def _batch(connection: Connection, purpose: str) -> None:
    connection.execute(
        "insert into sereno.batches (purpose, channel, account, due_at, deliveries) "
        "select %s, channel, account, due_at, array[id] from sereno.deliveries",
        [purpose],
    )


def _put_job(connection: Connection, task: str, args: str) -> int:
    found: int = one(
        connection,
        "insert into sereno.jobs (state, queue, task, args, run_at) "
        "values ('scheduled', 'notifications', %s, %s::jsonb, sereno.now() + interval '1 day') returning id",
        task,
        args,
    )
    return found


@pytest.mark.slow
async def test_notifications_in_use_violate_nothing(app: Sereno, connection: Connection) -> None:
    class ReceiptPager(Pager):
        """A channel that supports receipts."""

        receipts_after = 900.0

    pager = ReceiptPager()
    pager.outcomes = {"gone": Invalid("NotRegistered"), "late": Retryable("busy")}
    published = app.event("tender.published", Tender, channels=[pager, in_app])
    for key in ("gone", "late", "good", "off"):
        await app.recipients.aupsert(key, {"pager": key})
    await app.recipients.aprefer("off", wanted=False)
    async with app.working():
        await published.anotify(Tender("T1"), subject="T1")
        await published.anotify(Tender("T2"), to=["off", "good"])
        await auntil(lambda: len(pager.sent) == 4)
        await auntil(lambda: one(connection, "select count(*) from sereno.deliveries where state = 'sending'") == 0)
        assert broken(app, None) == {}
        number = next(message.delivery for message in pager.sent if message.address == "good")
        pager.receipts_to_return = [Receipt(provider_id=f"p{number}", outcome="read")]
        pager.outcomes = {}
        advance(connection, 1000)
        await auntil(lambda: one(connection, "select state from sereno.deliveries where id = %s", number) == "read")
        await auntil(lambda: one(connection, "select count(*) from sereno.deliveries where state = 'pending'") == 0)
        assert await app.inbox.amark("good", "read") == 2
    assert broken(app, None) == {}


@pytest.mark.slow
def test_an_unmatched_event_without_a_job_is_reported(app: Sereno, connection: Connection, event: int) -> None:
    connection.execute("update sereno.events set matched_at = null")
    assert broken(app) == {"events_matched": [event]}
    _put_job(connection, "sereno.fan_out", '{"event": 0}')
    assert broken(app) == {"events_matched": [event]}
    _put_job(connection, "sereno.fan_out", f'{{"event": {event}}}')
    assert broken(app) == {}


def test_an_event_that_has_just_become_due_is_tolerated(app: Sereno, connection: Connection, event: int) -> None:
    connection.execute("update sereno.events set matched_at = null, due_at = sereno.now() - interval '9 minutes'")
    assert broken(app) == {}
    advance(connection, 120)
    assert broken(app) == {"events_matched": [event]}


@pytest.mark.slow
def test_two_deliveries_with_one_key_are_reported(app: Sereno, connection: Connection, delivery: int) -> None:
    connection.execute("alter table sereno.deliveries drop constraint deliveries_once")
    assert broken(app) == {"deliveries_once": [0]}
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, address_id, channel, due_at) "
        "select event_id, recipient_id, address_id, channel, due_at from sereno.deliveries"
    )
    _batch(connection, "send")
    assert broken(app) == {"deliveries_once": [0, delivery]}


@pytest.mark.slow
def test_a_constraint_that_allows_duplicates_without_an_address_is_reported(
    app: Sereno, connection: Connection, delivery: int
) -> None:
    connection.execute(
        "alter table sereno.deliveries drop constraint deliveries_once, "
        "add constraint deliveries_once unique (event_id, recipient_id, channel, address_id)"
    )
    assert broken(app) == {"deliveries_once": [0]}


INCONSISTENT_STATES = (
    # The change that makes a delivery inconsistent, and the one that makes it consistent again.
    ("state = 'sent'", "sent_at = sereno.now()"),
    ("state = 'delivered'", "sent_at = sereno.now()"),
    ("state = 'read'", "sent_at = sereno.now()"),
    ("state = 'sending'", "job_id = 1"),
    ("state = 'skipped'", "reason = 'preference off'"),
    ("state = 'expired', reason = ''", "reason = 'no longer true'"),
    ("state = 'dead'", "reason = '9 tries'"),
)


@pytest.mark.slow
def test_an_inconsistent_state_is_reported(connection: Connection, delivery: int, subtests: pytest.Subtests) -> None:
    for wrong, right in INCONSISTENT_STATES:
        with subtests.test(wrong=wrong), undone(connection):
            connection.execute(f"update sereno.deliveries set {wrong}".encode())
            assert broken_inside(connection) == {"deliveries_legal": [delivery]}
            connection.execute(f"update sereno.deliveries set {right}".encode())
            assert broken_inside(connection) == {}


@pytest.mark.slow
def test_a_refused_address_that_is_active_is_reported(app: Sereno, connection: Connection, delivery: int) -> None:
    advance(connection, 60)
    connection.execute("update sereno.deliveries set state = 'invalid', changed_at = sereno.now()")
    assert broken(app) == {"deliveries_legal": [delivery]}
    connection.execute("update sereno.addresses set state = 'invalid'")
    assert broken(app) == {}
    advance(connection, 60)
    app.recipients.upsert("u", {"pager": "a"})
    assert one(connection, "select state from sereno.addresses") == "active"
    assert broken(app) == {}


@pytest.mark.slow
def test_a_delivery_whose_job_is_gone_is_reported(app: Sereno, connection: Connection, delivery: int) -> None:
    job = _put_job(connection, "sereno.deliver", '{"channel": "pager", "account": ""}')
    connection.execute("update sereno.deliveries set state = 'sending', job_id = %s", [job])
    connection.execute("update sereno.batches set job_id = %s, taken_at = sereno.now()", [job])
    advance(connection, 3600)
    assert broken(app) == {}
    connection.execute("delete from sereno.jobs")
    assert broken(app) == {"sending_has_a_job": [delivery]}
    connection.execute("update sereno.batches set taken_at = sereno.now() - interval '9 minutes'")
    assert broken(app) == {}


@pytest.mark.slow
def test_an_overdue_delivery_without_a_job_is_reported(app: Sereno, connection: Connection, delivery: int) -> None:
    advance(connection, 3600)
    assert broken(app) == {"pending_has_a_job": [delivery]}
    _put_job(connection, "sereno.deliver", '{"channel": "email", "account": ""}')
    _put_job(connection, "sereno.deliver", '{"channel": "pager", "account": "other"}')
    assert broken(app) == {"pending_has_a_job": [delivery]}
    _put_job(connection, "sereno.deliver", '{"channel": "pager", "account": ""}')
    assert broken(app) == {}


@pytest.mark.slow
def test_only_a_pause_of_its_channel_and_account_excuses_an_overdue_delivery(
    connection: Connection, delivery: int, subtests: pytest.Subtests
) -> None:
    for account, paused, holds in (("", "", True), ("t", "", True), ("t", "t", True), ("", "t", False)):
        with subtests.test(account=account, paused=paused), undone(connection):
            connection.execute("update sereno.batches set account = %s", [account])
            connection.execute(
                "insert into sereno.channel_pauses values ('email', '', 'x'), ('pager', %s, 'x')", [paused]
            )
            advance(connection, 3600)
            assert broken_inside(connection) == ({} if holds else {"pending_has_a_job": [delivery]})


@pytest.mark.slow
def test_a_receipt_without_a_polling_job_is_reported(app: Sereno, connection: Connection, delivery: int) -> None:
    connection.execute("update sereno.deliveries set state = 'sent', sent_at = sereno.now(), receipt_at = sereno.now()")
    connection.execute("update sereno.batches set purpose = 'ask', ends_at = sereno.now() + interval '1 day'")
    assert broken(app) == {}
    advance(connection, 3600)
    assert broken(app) == {"receipts_have_a_job": [delivery]}
    job = _put_job(connection, "sereno.receipts", '{"channel": "pager", "account": ""}')
    assert broken(app) == {}
    connection.execute("delete from sereno.jobs where id = %s", [job])
    advance(connection, 24 * 3600)
    assert broken(app) == {}


@pytest.mark.slow
def test_an_undelivered_inbox_entry_is_reported(
    app: Sereno, connection: Connection, delivery: int, subtests: pytest.Subtests
) -> None:
    connection.execute("update sereno.deliveries set channel = 'in_app', state = 'delivered', sent_at = sereno.now()")
    row = one(
        connection,
        "insert into sereno.inbox (recipient_id, delivery_id, event, title, body) "
        "select recipient_id, id, 'e', 't', 'b' from sereno.deliveries returning id",
    )
    assert broken(app) == {}
    for change in (
        "update sereno.deliveries set state = 'failed'",
        "update sereno.deliveries set recipient_id = recipient_id + 1",
        "delete from sereno.deliveries",
    ):
        with subtests.test(change=change), undone(connection):
            connection.execute(change)
            assert broken_inside(connection) == {"inbox_delivered": [row]}
