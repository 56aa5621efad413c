"""Enqueue with SQL: from psql, a trigger, another language."""

from datetime import datetime

import psycopg
import pytest

from tests.facts import one
from tests.jobs.job_steps import row, session, take, take_one


def test_a_job_enqueued_with_sql_can_be_claimed(connection: psycopg.Connection) -> None:
    job = one(connection, """select sereno.enqueue('work', '{"account": "r42"}', tenant => 'r42')""")
    found = row(connection, job)
    assert (found["state"], found["task"], found["args"]) == ("ready", "work", {"account": "r42"})
    assert (found["queue"], found["priority"], found["tenant"]) == ("default", 5, "r42")
    assert take_one(connection, session(connection)).id == job


def test_every_option_given_in_sql_is_stored(connection: psycopg.Connection) -> None:
    options = "queue => 'slow', priority => 1, tags => array['a', 'b'], trace => 't', expires_at => '2101-01-01Z'"
    plain = row(connection, one(connection, f"select sereno.enqueue('work', '{{}}', {options})"))
    keyed = row(connection, one(connection, f"select sereno.enqueue('work', '{{}}', {options}, unique_key => 'k')"))
    names = ("queue", "priority", "tags", "trace", "expires_at", "state", "args")
    assert {name: plain[name] for name in names} == {name: keyed[name] for name in names}
    assert (plain["queue"], plain["priority"], plain["tags"], plain["trace"]) == ("slow", 1, ["a", "b"], "t")
    assert plain["expires_at"].year == 2101


def test_a_keyed_job_is_created_once(connection: psycopg.Connection) -> None:
    first = one(connection, "select sereno.enqueue('work', unique_key => 'k')")
    assert one(connection, "select sereno.enqueue('work', unique_key => 'k')") == first
    assert one(connection, "select sereno.enqueue('work', unique_key => 'k', tenant => 'b')") != first
    assert one(connection, "select count(*) from sereno.jobs") == 2


@pytest.mark.parametrize("key", ["", ", unique_key => 'k'"], ids=["plain", "keyed"])
def test_a_job_with_a_run_time_is_scheduled(connection: psycopg.Connection, key: str) -> None:
    run_at_given: datetime = one(connection, "select sereno.now() + interval '1 hour'")
    job = one(connection, f"select sereno.enqueue('work', run_at => %s{key})", run_at_given)
    found = row(connection, job)
    assert (found["state"], found["run_at"]) == ("scheduled", run_at_given)
    assert take(connection, session(connection)) == []


def test_a_trigger_enqueues_in_the_transaction_of_its_row(connection: psycopg.Connection) -> None:
    connection.execute("create table orders (id bigint generated always as identity, amount numeric)")
    connection.execute(
        "create function order_made() returns trigger language plpgsql as $$ begin "
        "perform sereno.enqueue('charge', jsonb_build_object('order', new.id, 'amount', new.amount)); "
        "return new; end $$"
    )
    connection.execute("create trigger made after insert on orders for each row execute function order_made()")

    connection.execute("insert into orders (amount) values (9.90), (12)")
    with connection.transaction(force_rollback=True):
        connection.execute("insert into orders (amount) values (1)")

    stored = connection.execute("select args from sereno.jobs order by id").fetchall()
    assert [args for (args,) in stored] == [{"order": 1, "amount": 9.90}, {"order": 2, "amount": 12}]


def test_invalid_sql_arguments_are_refused(connection: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for arguments, error in [
        ("'work', '[1]'", psycopg.errors.CheckViolation),
        ("'work', priority => 10", psycopg.errors.CheckViolation),
        ("'work', run_at => 'infinity'", psycopg.errors.CheckViolation),
        ("'work', run_at => '-infinity'", psycopg.errors.CheckViolation),
        ("null", psycopg.errors.NotNullViolation),
        ("'work', null", psycopg.errors.NotNullViolation),
    ]:
        with subtests.test(arguments=arguments, error=error):
            with pytest.raises(error):
                connection.execute(f"select sereno.enqueue({arguments})".encode())
            assert one(connection, "select count(*) from sereno.jobs") == 0
