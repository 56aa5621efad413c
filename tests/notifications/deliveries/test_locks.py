"""Deliveries, batches and addresses are locked in one order: senders, receipts and operators never deadlock."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from sereno.channels.outcome import Receipt
from sereno.notifications.deliveries import receipt_store
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.delivery import State
from sereno.notifications.deliveries.store import take_batches
from sereno.notifications.deliveries.transition import Transition
from sereno.notifications.recipients import store as recipients
from tests.facts import TIMEOUT, one, until
from tests.jobs.job_steps import Connection, do, line

RECIPIENTS = 60
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"
JOB = 7

Ids = Sequence[int]
Act = Callable[[Connection, Ids], object]


def put_batch(connection: Connection, deliveries: Ids, due_ago: float, **columns: Any) -> int:
    """Create a batch that became due `due_ago` seconds ago. Return its id."""
    given = {"purpose": "send", "job_id": None, "ends_at": None} | columns
    found: int = one(
        connection,
        "insert into sereno.batches (purpose, channel, account, due_at, job_id, taken_at, ends_at, deliveries) values "
        "(%s, 'pager', '', sereno.now() - make_interval(secs => %s), %s, sereno.now(), %s, %s) returning id",
        *[given["purpose"], due_ago, given["job_id"], given["ends_at"], list(deliveries)],
    )
    return found


def blocked_on(connection: Connection, waiting: Connection) -> list[int]:
    found: list[int] = one(connection, "select pg_blocking_pids(%s)", waiting.info.backend_pid)
    return found


def test_a_job_that_waits_for_a_batch_locks_no_batch_of_another_job(database_url: str) -> None:
    """Repeats a deadlock that occurred on a busy machine, step by step.

    One job claims the batches 1 and 3 and another job batch 2. A third one finds all of them locked and waits. It must
    not lock 3 before it waits for 1, because the first job locks 1 and then 3 when it records its outcomes.
    """
    with (
        line(database_url) as connection,
        line(database_url) as owner,
        line(database_url) as other,
        line(database_url) as waiter,
        ThreadPoolExecutor(2) as threads,
    ):
        # By the number of the batch; the last one is due first.
        last, middle, first = (put_batch(connection, [each], each) for each in (1, 2, 3))
        for each in (owner, other, waiter):
            each.execute("set deadlock_timeout = '20ms'")
        owner.execute("begin")
        other.execute("begin")
        with connection.transaction():
            # Locked, so that the first job claims the other two.
            connection.execute("select from sereno.batches where id = %s for update", [middle])
            assert [batch for batch, _ in do(owner, take_batches("send", "pager", "", 2, job=JOB))] == [first, last]
        assert [batch for batch, _ in do(other, take_batches("send", "pager", "", 1, job=8))] == [middle]
        waiting = threads.submit(do, waiter, take_batches("send", "pager", "", 1, job=9))
        until(lambda: blocked_on(connection, waiter) == [owner.info.backend_pid])
        owner.execute("commit")
        until(lambda: waiting.done() or blocked_on(connection, waiter) == [other.info.backend_pid])
        writing = threads.submit(do, owner, deliveries.record(JOB, [last, first], []))
        until(lambda: writing.done() or blocked_on(connection, owner) == [waiter.info.backend_pid])
        other.execute("commit")
        assert waiting.result(TIMEOUT) == []
        writing.result(TIMEOUT)
        assert one(connection, "select array_agg(id) from sereno.batches") == [middle]
        assert one(connection, DEADLOCKS) == 0


def make_deliveries(connection: Connection, seed: int, state: State) -> Ids:
    """Create recipients with two addresses each, a delivery in this state, and others collected into it.

    The ids are shuffled. Batches hold the deliveries: job 7 is sending them, or the time to request their receipts is
    over. Return the ids of the deliveries that collect others.
    """
    connection.execute("truncate sereno.recipients, sereno.deliveries, sereno.batches, sereno.message_ids cascade")
    connection.execute("truncate sereno.receipts, sereno.early_receipts, sereno.addresses, sereno.inbox")
    connection.execute(
        "insert into sereno.recipients (key) select 'u' || n from generate_series(1, %s) as n", [RECIPIENTS]
    )
    connection.execute(
        "insert into sereno.addresses (recipient_id, channel, address) "
        "select id, 'pager', side || id from sereno.recipients cross join (values ('a'), ('b')) as s(side) "
        "order by hashint8(id + %s), side",
        [seed],
    )
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, address_id, channel, state, due_at, job_id, attempts, "
        "                               provider_id, receipt_at, digest) "
        "select n, a.recipient_id, a.id, 'pager', case when n = 1 then %(state)s else 'skipped' end, sereno.now(), "
        "       case when n = 1 and %(state)s in ('sending', 'unknown') then 7 end, 1, "
        "       case when n = 1 then 'p' || a.id end, case when n = 1 and %(state)s = 'sent' then sereno.now() end, "
        "       'news' "
        "from sereno.addresses a cross join generate_series(1, 3) as n order by hashint8(a.id * 3 + n + %(seed)s)",
        {"state": state, "seed": seed},
    )
    connection.execute(
        "update sereno.deliveries d set digest_of = c.id from sereno.deliveries c "
        "where c.event_id = 1 and d.event_id > 1 and c.address_id = d.address_id"
    )
    connection.execute(
        "insert into sereno.message_ids (channel, account, provider_id, delivery_id) "
        "select channel, account, provider_id, id from sereno.deliveries where provider_id is not null"
    )
    if state == "delivered":
        connection.execute(
            "insert into sereno.inbox (recipient_id, delivery_id, event, title, body) "
            "select recipient_id, id, 'x', 'x', 'x' from sereno.deliveries where event_id = 1 "
            "order by hashint8(id + %s)",
            [seed],
        )
    ids: list[int] = one(connection, "select array_agg(id) from sereno.deliveries where event_id = 1")
    Random(seed).shuffle(ids)
    for start in range(0, len(ids), 10):
        own: dict[str, Any] = {"job_id": JOB} if state == "sending" else {"purpose": "ask", "ends_at": "2001-01-01"}
        put_batch(connection, ids[start : start + 10], 1, **own)
    return ids


def batches_of(connection: Connection) -> dict[int, list[int]]:
    return dict(connection.execute("select id, deliveries from sereno.batches").fetchall())


def fails(connection: Connection, ids: Ids) -> object:
    transitions = [Transition(id=each, state="invalid", code="gone", bad_address=True) for each in ids]
    return do(connection, deliveries.record(JOB, list(batches_of(connection)), transitions))


def gets_receipts(connection: Connection, ids: Ids, **options: Any) -> object:
    names = dict(connection.execute("select id, provider_id from sereno.deliveries where event_id = 1").fetchall())
    reported = [
        Receipt(provider_id=names[each], outcome="invalid", code="gone", id=f"r{each}")
        for each in ids
        if names.get(each)
    ]
    return do(connection, receipt_store.apply("pager", "", reported, [60.0], **options))


def gets_requested_receipts(connection: Connection, ids: Ids) -> object:
    requested = {f"p{each}": [each] for each in ids}
    left_over = {batch: each[5:] for batch, each in batches_of(connection).items()}
    return gets_receipts(connection, ids[:20], requested=requested, left_over=left_over)


def stops_requesting(connection: Connection, ids: Ids) -> object:
    return do(connection, receipt_store.stop_expired("pager", ""))


def requeues(connection: Connection, ids: Ids) -> object:
    return do(connection, deliveries.requeue(one(connection, "select array_agg(id) from sereno.deliveries")))


def settles_stranded(connection: Connection, ids: Ids) -> object:
    found = do(connection, deliveries.stranded("pager", "", JOB))
    transitions = [Transition(id=each, state="dead") for lost in found for each, _ in lost.deliveries]
    return do(connection, deliveries.record(JOB, [lost.batch for lost in found], transitions))


def takes(connection: Connection, ids: Ids) -> object:
    return do(connection, deliveries.take("pager", "", 9, 50))


def all_keys() -> list[str]:
    return [f"u{number}" for number in range(1, RECIPIENTS + 1)]


def reads_all(connection: Connection, ids: Ids) -> object:
    return [do(connection, recipients.mark(key, "read", None, tenant=None)) for key in all_keys()]


def archives_some(connection: Connection, ids: Ids) -> object:
    theirs = "select array_agg(i.id) from sereno.inbox i join sereno.recipients r on r.id = i.recipient_id"
    for key in all_keys():
        found = one(connection, f"{theirs} where r.key = %s", key)
        do(connection, recipients.mark(key, "archived", found or [], tenant=None))
    return None


def edits_addresses(connection: Connection, ids: Ids) -> object:
    theirs = "select array_agg(address) from sereno.addresses a join sereno.recipients r on r.id = a.recipient_id"
    for key in all_keys():
        both = one(connection, f"{theirs} where r.key = %s", key) or []
        do(connection, recipients.change_address(key, "pager", both, tenant=None, state="active", reason=None))
    return None


def deletes_recipients(connection: Connection, ids: Ids) -> object:
    return [do(connection, recipients.delete(key, tenant=None)) for key in all_keys()[::2]]


CONCURRENT_ACTS: dict[str, tuple[State, list[Act]]] = {
    "outcomes": ("sending", [fails, requeues, settles_stranded, takes]),
    "outcomes and operators": ("sending", [fails, edits_addresses, deletes_recipients]),
    "receipts": ("sent", [gets_receipts, gets_receipts, gets_requested_receipts, stops_requesting]),
    "receipts and operators": ("unknown", [gets_receipts, gets_requested_receipts, requeues, takes]),
    "inbox": ("delivered", [reads_all, archives_some, deletes_recipients]),
}
# Acts of an operator: a transaction per statement, not one around all of them.
ONE_TRANSACTION_PER_STATEMENT = {edits_addresses, deletes_recipients, reads_all, archives_some}


@pytest.mark.slow
@pytest.mark.parametrize(("state", "acts"), CONCURRENT_ACTS.values(), ids=CONCURRENT_ACTS)
@pytest.mark.parametrize("count", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_opposite_orders_never_deadlock(database_url: str, state: State, acts: list[Act], count: int) -> None:
    """All acts lock the same deliveries, half of them in reverse order; PostgreSQL would report a deadlock."""
    barrier = Barrier(len(acts) + 1)
    rounds: list[Ids] = []

    def call(number: int, act: Act) -> None:
        with line(database_url) as own:
            own.execute("set deadlock_timeout = '20ms'")
            try:
                for _ in range(count):
                    barrier.wait(TIMEOUT)
                    ids = rounds[-1] if number % 2 else rounds[-1][::-1]
                    if act in ONE_TRANSACTION_PER_STATEMENT:
                        act(own, ids)
                    else:
                        with own.transaction():
                            act(own, ids)
                    barrier.wait(TIMEOUT)
            except Exception:
                barrier.abort()
                raise

    with line(database_url) as connection, ThreadPoolExecutor(len(acts)) as threads:
        calls = [threads.submit(call, number, act) for number, act in enumerate(acts)]
        with suppress(BrokenBarrierError):
            for number in range(count):
                rounds.append(make_deliveries(connection, number, state))
                barrier.wait(TIMEOUT)
                barrier.wait(TIMEOUT)
        errors = [error for finished in calls if (error := finished.exception()) is not None]
        assert [error for error in errors if not isinstance(error, BrokenBarrierError)] == []
        assert len(rounds) == count
        assert one(connection, DEADLOCKS) == 0
