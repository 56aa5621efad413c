"""The views of events, deliveries, receipts, recipients and addresses show what the operations show."""

from typing import Any, ClassVar, get_args

import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row

from sereno import Sereno, in_app
from sereno.channels.outcome import Failed, Invalid, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.notifications import queries
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.delivery import State
from sereno.notifications.deliveries.send_jobs import ONCE
from sereno.notifications.rows import AddressRow, DeliveryRow, EventRow, ReceiptRow, RecipientRow
from tests.facts import advance, one
from tests.notifications.conftest import Pager, Tender

# The recipient of each state; its outcome when it is sent, and then its receipts.
OUTCOMES: dict[str, tuple[Outcome, list[Receipt]]] = {
    "sent": (Sent("sent"), []),
    "delivered": (Sent("delivered"), [Receipt(provider_id="delivered", outcome="delivered", id="r1")]),
    "read": (
        Sent("read"),
        [
            Receipt(provider_id="read", outcome="delivered", id="r2"),
            Receipt(provider_id="read", outcome="read", id="r3"),
        ],
    ),
    "bounced": (Sent("bounced"), [Receipt(provider_id="bounced", outcome="bounced", code="550", id="r4")]),
    "failed": (Failed("too_big", "4 MB"), []),
    "invalid": (Invalid("NotRegistered", "bye"), []),
    "dead": (Retryable("busy"), []),
    "unknown": (Unknown("cut"), []),
}
# Columns of the views that a row of the operations names in another way, or does not have.
IN_THE_VIEWS_ONLY = {"receipt_id", "delivered_at", "read_at", "completed_at", "trace", "audience"}
NOT_IN_THE_VIEWS = {"receipt_at", "address", "address_state", "address_reason", "payload", "named", "walked"}


class ParkingPager(Pager):
    """Tries once; unknown outcomes wait for an operator."""

    on_unknown = "park"
    delays: ClassVar[tuple[float, ...]] = ()


async def _deliver_in_every_state(app: Sereno, connection: psycopg.Connection) -> None:
    pager = ParkingPager()
    pager.outcomes = {key: outcome for key, (outcome, _) in OUTCOMES.items()}
    published = app.event("tender.published", Tender, channels=[pager, in_app])
    for key in (*OUTCOMES, "skipped"):
        await app.recipients.aupsert(key, {"pager": key}, tenant="r42", locale="es", data={"name": key})
    await app.recipients.aprefer("skipped", channel="pager", wanted=False, tenant="r42")

    async def send(code: str, *to: str, channel: str = "pager", **options: Any) -> int:
        event = await published.anotify(Tender(code), subject=code, key=f"k:{code}", to=to, tenant="r42", **options)
        await app.notifications.fanout.fan_out(event)
        advance(connection, 1)
        await app.notifications.sender.deliver(7, channel, "", ONCE)
        return event

    await send("expired", "sent", ttl="0.5s")
    await send("every", *OUTCOMES, "skipped")
    for receipt in (receipt for _, receipts in OUTCOMES.values() for receipt in receipts):
        advance(connection, 60)
        assert await app.notifications.receipts.apply("pager", "", [receipt]) == 1
    await send("inbox", "sent", channel="in_app")
    advance(connection, 60)
    assert await app.inbox.amark("sent", "read", tenant="r42") == 2
    for code in ("sending", "pending"):
        event = await published.anotify(Tender(code), subject=code, to=["sent"], tenant="r42")
        await app.notifications.fanout.fan_out(event)
    assert len(app.database.run(deliveries.take("pager", "", 7, 1)).deliveries) == 1


async def test_a_delivery_is_the_same_in_the_view_and_in_the_operations(
    app: Sereno, connection: psycopg.Connection
) -> None:
    await _deliver_in_every_state(app, connection)
    names = set(DeliveryRow.__struct_fields__) - NOT_IN_THE_VIEWS
    seen = _rows(connection, "select * from sereno.deliveries_v1 order by id")
    assert {row["state"] for row in seen} == set(get_args(State))
    assert names | (IN_THE_VIEWS_ONLY & set(seen[0])) == set(seen[0])
    for row in seen:
        _compare(row, app.database.run(queries.delivery(row["id"])), names)
        receipts = app.database.run(queries.receipts(row["id"]))
        assert row["receipt_id"] == (receipts[0].receipt_id if receipts else None)


@pytest.mark.slow
async def test_the_instants_of_a_delivery_follow_its_state(app: Sereno, connection: psycopg.Connection) -> None:
    await _deliver_in_every_state(app, connection)
    every = "select * from sereno.deliveries_v1 where subject = 'every' and channel = 'pager'"
    found = {row["recipient"]: row for row in _rows(connection, every)}
    read, delivered, sent = found["read"], found["delivered"], found["sent"]
    assert read["sent_at"] < read["delivered_at"] < read["read_at"] == read["changed_at"]
    assert delivered["sent_at"] < delivered["delivered_at"] == delivered["changed_at"]
    assert [row["completed_at"] == row["sent_at"] for row in (read, delivered, sent)] == [True] * 3
    assert sent["delivered_at"] is sent["read_at"] is None
    for state in ("bounced", "failed", "invalid", "dead", "skipped"):
        assert found[state]["completed_at"] == found[state]["changed_at"], state
    assert found["bounced"]["completed_at"] > found["bounced"]["sent_at"]
    open_states = "select array_agg(distinct state order by state) from sereno.deliveries_v1 where completed_at is null"
    assert one(connection, open_states) == ["pending", "sending", "unknown"]
    for row in _rows(connection, "select * from sereno.deliveries_v1 where channel = 'in_app' and state = 'read'"):
        assert row["delivered_at"] == row["sent_at"] < row["read_at"]
    (expired,) = _rows(connection, "select * from sereno.deliveries_v1 where state = 'expired' and channel = 'pager'")
    assert expired["completed_at"] == expired["changed_at"] > expired["due_at"]


@pytest.mark.slow
async def test_events_receipts_recipients_and_addresses_are_the_same(
    app: Sereno, connection: psycopg.Connection
) -> None:
    await _deliver_in_every_state(app, connection)
    for row in _rows(connection, "select * from sereno.events_v1"):
        _compare(row, app.database.run(queries.event(row["id"])), set(EventRow.__struct_fields__) - {"named", "walked"})
    for row in _rows(connection, "select * from sereno.receipts_v1"):
        (shown,) = (each for each in app.database.run(queries.receipts(row["delivery_id"])) if each.id == row["id"])
        _compare(row, shown, set(ReceiptRow.__struct_fields__))
    for row in _rows(connection, "select * from sereno.recipients_v1"):
        names = set(RecipientRow.__struct_fields__)
        _compare(row, app.database.run(queries.recipient(row["key"], tenant="r42")), names)
    addresses = _rows(connection, "select * from sereno.addresses_v1 order by id")
    assert {row["state"] for row in addresses} == {"active", "invalid"}
    for row in addresses:
        assert (row["recipient"], row["tenant"]) == (row["address"], "r42")
        (address,) = app.database.run(queries.addresses(row["recipient_id"]))
        _compare(row, address, set(AddressRow.__struct_fields__))


def _compare(row: dict[str, Any], shown: msgspec.Struct | None, names: set[str]) -> None:
    assert shown is not None
    found = {name: getattr(shown, name) for name in names}
    decoded = {
        name: msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value for name, value in found.items()
    }
    assert {name: row[name] for name in names} == decoded


def _rows(connection: psycopg.Connection, query: str) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query.encode()).fetchall()
