"""Orders that are paid, paid twice, paid late, and never paid."""

from typing import Any

import psycopg
import pytest

from orders.app import Payment, fulfil, pay, place
from orders.tests.conftest import RunSql
from sereno.testing.kit import Kit

PAYMENT = Payment(250, "P-1")
SHIPPED = "select number, parcel from orders.shipments"


def placed(connection: psycopg.Connection[Any]) -> int:
    with connection.transaction():
        return place(connection, "lamp", 250)


def paid(connection: psycopg.Connection[Any], number: int) -> None:
    with connection.transaction():
        pay(connection, number, PAYMENT)


def test_an_order_is_shipped_when_it_was_paid(kit: Kit, connection: psycopg.Connection[Any], run_sql: RunSql) -> None:
    number = placed(connection)
    kit.drain()
    assert run_sql("select released from orders.reservations") == [(False,)]
    assert run_sql(SHIPPED) == []
    paid(connection, number)
    # The provider repeats its callback.
    paid(connection, number)
    kit.drain()
    assert run_sql(SHIPPED) == [(number, f"parcel {number} from rack {number}")]
    assert run_sql("select count(*) from sereno.signals") == [(1,)]
    assert [job.state for job in kit.jobs(fulfil)] == ["succeeded"]


@pytest.mark.slow
def test_a_payment_may_arrive_before_the_worker(kit: Kit, connection: psycopg.Connection[Any], run_sql: RunSql) -> None:
    paid(connection, placed(connection))
    kit.drain()
    assert len(run_sql(SHIPPED)) == 1


@pytest.mark.slow
def test_an_order_that_is_not_paid_is_released(kit: Kit, connection: psycopg.Connection[Any], run_sql: RunSql) -> None:
    number = placed(connection)
    kit.drain()
    kit.travel("14d")
    kit.drain()
    assert run_sql("select released from orders.reservations") == [(True,)]
    # Too late: the order has ended. The payment is stored, and has to be refunded.
    paid(connection, number)
    kit.drain()
    assert run_sql(SHIPPED) == []
    assert len(run_sql("select number from orders.payments")) == 1


@pytest.mark.slow
def test_a_payment_that_is_rolled_back_ships_nothing(
    kit: Kit, connection: psycopg.Connection[Any], run_sql: RunSql
) -> None:
    number = placed(connection)
    kit.drain()
    with connection.transaction(force_rollback=True):
        pay(connection, number, PAYMENT)
    kit.drain()
    assert [job.state for job in kit.jobs(fulfil)] == ["scheduled"]
    paid(connection, number)
    kit.drain()
    assert len(run_sql(SHIPPED)) == 1
