"""Pending deliveries are stored in batches: claimed whole, merged up to a size, split if too large, each by one job."""

from collections.abc import Sequence

import psycopg

from sereno.database.statement import run
from sereno.notifications.deliveries.store import take_batches
from tests.facts import advance, one


def put(connection: psycopg.Connection, *sizes: int, purpose: str = "send") -> None:
    """Create batches of these sizes, with deliveries numbered from 1, due in this order."""
    start = 1
    for place, size in enumerate(sizes):
        connection.execute(
            "insert into sereno.batches (purpose, channel, account, due_at, ends_at, deliveries) "
            "values (%s, 'pager', '', sereno.now() + make_interval(secs => %s), 'infinity', %s)",
            [purpose, (place - len(sizes)) / 1000, list(range(start, start + size))],
        )
        start += size


def taken(connection: psycopg.Connection, most: int, job: int = 7) -> list[Sequence[int]]:
    return [ids for _, ids in run(connection, take_batches("send", "pager", "", most, job=job))]


def test_small_batches_are_claimed_together_up_to_the_size(connection: psycopg.Connection) -> None:
    put(connection, 2, 3, 4, 1)
    assert taken(connection, 6) == [[1, 2], [3, 4, 5], [6]]
    assert taken(connection, 6) == [[7, 8, 9], [10]]
    assert taken(connection, 6) == []


def test_a_batch_that_is_too_large_is_split(connection: psycopg.Connection) -> None:
    put(connection, 7, 1)
    assert taken(connection, 3) == [[1, 2, 3]]
    assert taken(connection, 3) == [[4, 5, 6]]
    assert taken(connection, 3) == [[7], [8]]
    assert one(connection, "select count(*) from sereno.batches where job_id = 7") == 4


def test_batches_that_are_not_due_are_not_claimed(connection: psycopg.Connection) -> None:
    put(connection, 2)
    connection.execute("update sereno.batches set due_at = sereno.now() + interval '1 minute'")
    assert taken(connection, 10) == []
    advance(connection, 61)
    assert taken(connection, 10) == [[1, 2]]


def test_batches_of_a_paused_channel_are_not_claimed(connection: psycopg.Connection) -> None:
    put(connection, 2)
    connection.execute("insert into sereno.channel_pauses (channel, account, reason) values ('pager', '', 'broken')")
    assert taken(connection, 10) == []


def test_a_pause_of_a_channel_holds_for_its_accounts(connection: psycopg.Connection) -> None:
    put(connection, 2)
    connection.execute("update sereno.batches set account = 'acme'")
    pause = "insert into sereno.channel_pauses (channel, account, reason) values ('pager', %s, 'broken')"
    connection.execute(pause, [""])
    assert run(connection, take_batches("send", "pager", "acme", 10, job=7)) == []
    connection.execute("delete from sereno.channel_pauses")
    connection.execute(pause, ["other"])
    assert [ids for _, ids in run(connection, take_batches("send", "pager", "acme", 10, job=7))] == [[1, 2]]


def test_concurrent_claims_get_different_batches(connection: psycopg.Connection, database_url: str) -> None:
    put(connection, 2, 2, 2)
    with psycopg.connect(database_url) as other:
        assert taken(other, 2, job=1) == [[1, 2]]
        assert taken(connection, 2, job=2) == [[3, 4]]
        other.rollback()
    assert taken(connection, 4, job=3) == [[1, 2], [5, 6]]


def test_receipt_requests_are_due_again_later(connection: psycopg.Connection) -> None:
    put(connection, 2, purpose="ask")
    assert [ids for _, ids in run(connection, take_batches("ask", "pager", "", 10, again=900.0))] == [[1, 2]]
    assert run(connection, take_batches("ask", "pager", "", 10, again=900.0)) == []
    advance(connection, 901)
    assert [ids for _, ids in run(connection, take_batches("ask", "pager", "", 10, again=900.0))] == [[1, 2]]
