"""`kill -9` at every step of an order: it is reserved once, shipped once, and lost never.

A step is a row that is being written in an open transaction. All processes of the worker are killed there, and the next
worker runs to the next step.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from orders.app import Payment, app, fulfil, pay, place
from orders.tests.conftest import RunSql
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

# Seconds; processes start slowly on a busy machine.
PATIENCE = 90.0
# The table, what is done with a row, and which rows.
BEFORE_THE_PAYMENT = {
    "the reservation is written": ("orders.reservations", "insert", "true"),
    "the reservation is stored": ("sereno.steps", "insert", "new.name = 'reserve'"),
    "the wait is stored": ("sereno.signal_waits", "insert", "true"),
    "the job is settled": ("sereno.jobs", "update", "new.state = 'scheduled'"),
    "the job waits": ("sereno.signal_waits", "update", "new.attempt is not null"),
}
AFTER_THE_PAYMENT = {
    "the answer is stored": ("sereno.steps", "insert", "new.name like 'signal:%'"),
    "the shipment is written": ("orders.shipments", "insert", "true"),
    "the shipment is stored": ("sereno.steps", "insert", "new.name = 'ship'"),
    "the job ends": ("sereno.jobs", "delete", "true"),
}
# A step is blocked by an advisory lock.
LOCK = 815200
BLOCKED = f"""
    from pg_locks join pg_database on pg_database.oid = database
    where datname = current_database() and locktype = 'advisory' and objid = {LOCK} and not granted"""
WAIT_HERE = f"""
    create or replace function orders.wait_here() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock_shared({LOCK}); return null; end $$"""


@contextmanager
def blocked(run_sql: RunSql, table: str, what: str, when: str) -> Iterator[None]:
    """Block every transaction that does this, until the block ends."""
    run_sql(WAIT_HERE)
    run_sql(f"create trigger wait_here after {what} on {table} for each row when ({when})"
            " execute function orders.wait_here()")  # fmt: skip
    with psycopg.connect(app.url, autocommit=True) as holder:
        holder.execute(f"select pg_advisory_lock({LOCK})".encode())
        yield
        # The server rolls back what a killed process has not committed.
        run_sql(f"select pg_terminate_backend(pid, 5000) {BLOCKED}")
    run_sql(f"drop trigger wait_here on {table}")


def kill_at(kit: Kit, run_sql: RunSql, table: str, what: str, when: str) -> None:
    """Run a worker until it does this, and kill all of its processes."""
    with blocked(run_sql, table, what, when), kit.crash_worker("orders.app:app") as worker:
        worker.until(lambda: run_sql(f"select pid {BLOCKED}"), PATIENCE)
        worker.kill()
    kit.lose_leases()
    # A job that dies with its worker for the third time would be a dead letter.
    run_sql("update sereno.jobs set crashes = 1 where crashes > 1")


@pytest.mark.timeout(600)
def test_killed_at_every_step(
    kit: Kit, connection: psycopg.Connection[Any], run_sql: RunSql, assert_verified: Callable[[], None]
) -> None:
    with connection.transaction():
        number = place(connection, "lamp", 250)
    for step in BEFORE_THE_PAYMENT.values():
        kill_at(kit, run_sql, *step)
    kit.drain()
    assert [job.state for job in kit.jobs(fulfil)] == ["scheduled"]
    with connection.transaction():
        pay(connection, number, Payment(250, "P-1"))
    for step in AFTER_THE_PAYMENT.values():
        kill_at(kit, run_sql, *step)
        assert_verified()
    kit.drain()
    assert [job.state for job in kit.jobs(fulfil)] == ["succeeded"]
    assert run_sql("select number from orders.reservations") == [(number,)]
    assert run_sql("select number from orders.shipments") == [(number,)]
    assert_verified()
