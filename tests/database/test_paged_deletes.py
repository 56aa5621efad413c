"""Maintenance deletes by pages, and reports when there is more."""

from collections.abc import Callable, Iterator

import pytest

from sereno.access import idempotency
from sereno.database.statement import Operation
from sereno.jobs.limits import store as limits
from sereno.jobs.queries import error_groups, minute_stats
from sereno.worker import sessions
from tests.facts import one
from tests.jobs.job_steps import Connection, do, line

LONG_AGO = "sereno.now() - interval '200 days' - make_interval(secs => n)"
ROWS = "from generate_series(1, 25) as n"
Delete = Callable[[], Operation[bool]]

# A table, SQL that creates 25 expired rows, and the operation that deletes them.
EXPIRED: dict[str, tuple[str, Delete]] = {
    "sessions": (
        (
            "(host, pid, version, queues, tasks, lease_until, state, ended_at) "
            f"select 'h', 1, '0', '{{}}', '{{}}', {LONG_AGO}, 'closed', {LONG_AGO}"
        ),
        sessions.forget_ended,
    ),
    "unique_keys": (f"(task, unique_key, job_id, until) select 't', n::text, n, {LONG_AGO}", sessions.forget_ended),
    "idempotency_keys": (
        f"(who, key, request, at) select 'w', n::text, '', {LONG_AGO}",
        idempotency.delete_old_responses,
    ),
    "minutes": (f"(minute, queue, task, waits, runs) select {LONG_AGO}, 'q', 't', '{{}}', '{{}}'", minute_stats.forget),
    "tenant_hours": (f"(hour, tenant) select {LONG_AGO}, 't'", minute_stats.forget),
    "tries": (f"(hour, task, tries) select {LONG_AGO}, 't', '{{}}'", minute_stats.forget),
    "error_hours": (f"(fingerprint, hour, tenant, count) select 'f', {LONG_AGO}, 't', 1", minute_stats.forget),
}


@pytest.fixture
def connection(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    for module in (error_groups, idempotency, minute_stats, sessions):
        monkeypatch.setattr(module, "PAGE", 10)
    monkeypatch.setattr(limits, "SWEEP", 10)
    with line(database_url) as opened:
        yield opened


def test_old_rows_are_deleted_by_bounded_pages(connection: Connection, subtests: pytest.Subtests) -> None:
    for table, (columns, forget) in EXPIRED.items():
        with subtests.test(table=table):
            connection.execute(f"insert into sereno.{table} {columns} {ROWS}".encode())
            left = f"select count(*) from sereno.{table}"
            found = [(do(connection, forget()), one(connection, left)) for _ in range(3)]
            assert found == [(True, 15), (True, 5), (False, 0)]


def test_the_hours_of_an_error_group_are_deleted_by_pages_before_the_group(connection: Connection) -> None:
    connection.execute(
        b"insert into sereno.error_groups (fingerprint, task, error_type, message, frame, first_at, last_at, count, "
        b"last_job_id) select kind, 't', 'e', 'm', 'f', sereno.now(), sereno.now() - interval '200 days', 1, 1 "
        b"from unnest(array['a', 'b', 'c']) as kind"
    )
    connection.execute(
        b"insert into sereno.error_hours (fingerprint, hour, tenant, count) "
        b"select kind, sereno.now() - n * interval '1 hour', 't', 1 "
        b"from unnest(array['a', 'b', 'c']) as kind, generate_series(1, 8) as n"
    )
    left = (
        "select (select count(*) from sereno.error_hours) || ' ' || string_agg(fingerprint, '' order by fingerprint) "
        "from sereno.error_groups"
    )
    found = [(do(connection, minute_stats.forget()), one(connection, left)) for _ in range(3)]
    assert found == [(True, "14 bc"), (True, "4 c"), (False, None)]
    assert one(connection, "select count(*) from sereno.error_hours") == 0


@pytest.mark.slow
def test_a_page_of_shares_reads_the_lanes_of_its_own_keys(connection: Connection) -> None:
    """Every third key has no lane; no page of ten keys reads more lanes than keys."""
    connection.execute(
        b"insert into sereno.shares (queue, key, clock) select 'q', n::text, 0 from generate_series(1, 3000) as n"
    )
    connection.execute(
        b"insert into sereno.lanes (id, queue, keys, limiters, units, fair, band, turn) "
        b"select n, 'q', '{}', '{}', '{}', n::text, 0, 0 from generate_series(1, 3000) as n where n % 3 > 0"
    )
    connection.execute(b"analyze sereno.shares, sereno.lanes")
    read = (
        "select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0) "
        "from pg_stat_xact_user_tables where relname in ('shares', 'lanes')"
    )
    place: tuple[str, str] | None = limits.FIRST_SHARE
    pages = 0
    while place is not None:
        with connection.transaction():
            before = one(connection, read)
            place = do(connection, limits.sweep_shares(place))
            # The keys, their lanes, and the deleted keys twice.
            assert one(connection, read) - before <= 4 * 10
        pages += 1
    assert pages == 301
    assert one(connection, "select count(*) from sereno.shares") == 2000
    assert one(connection, "select count(*) from sereno.shares where mod(key::integer, 3) = 0") == 0
