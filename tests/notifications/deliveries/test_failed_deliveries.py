"""Lists of failed deliveries, and of those of one subject or recipient, do not depend on how many came after them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any, get_args

import psycopg
import pytest

from sereno import Sereno
from sereno.database.statement import run
from sereno.jobs import bulk
from sereno.jobs.filters import DeliveryFilter
from sereno.notifications.deliveries import lists
from sereno.notifications.deliveries.delivery import FAILED, State
from sereno.notifications.operations import REQUEUEABLE, requeueable
from sereno.notifications.search_fields import DELIVERY_FIELDS
from sereno.search.search_filter import search_params
from tests.database.plans import Access, accesses, nodes, plan
from tests.facts import one
from tests.jobs.job_steps import line
from tests.monitoring.verify_steps import broken

Connection = psycopg.Connection[Any]
# Deliveries that failed long ago; and those that arrived since, more than any list reads.
OLD, NEWER = 10_000, 200_000
STATES = ("dead", "failed", "bounced", "invalid", "unknown", "expired", "skipped")


def test_the_failed_states_are_those_that_are_requeued_except_skipped(connection: Connection) -> None:
    assert set(one(connection, "select sereno.failed_states()")) == FAILED == {*REQUEUEABLE} - {"skipped"}


@pytest.mark.slow
def test_the_table_of_failed_deliveries_follows_every_change(
    app: Sereno, connection: Connection, subtests: pytest.Subtests
) -> None:
    for number, (before, after) in enumerate(product(get_args(State), repeat=2), 1):
        with subtests.test(before=before, after=after):
            connection.execute(
                "insert into sereno.deliveries (event_id, recipient_id, channel, tenant, state, due_at) "
                "values (%s, 1, 'pager', 'r42', %s, sereno.now())",
                [number, before],
            )
            assert listed(connection) == ([(number, before, "pager", "r42")] if before in FAILED else [])
            connection.execute("update sereno.deliveries set state = %s", [after])
            assert listed(connection) == ([(number, after, "pager", "r42")] if after in FAILED else [])
            connection.execute("delete from sereno.deliveries")
            assert listed(connection) == []


def listed(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute("select delivery_id, state, channel, tenant from sereno.failed_deliveries").fetchall()


@pytest.mark.slow
def test_a_failed_delivery_that_is_not_listed_is_reported(app: Sereno, connection: Connection) -> None:
    number = one(
        connection,
        "insert into sereno.deliveries (event_id, recipient_id, channel, state, reason, due_at) "
        "values (1, 1, 'pager', 'failed', 'refused', sereno.now()) returning id",
    )
    assert broken(app) == {}
    for wrong in (
        "delete from sereno.failed_deliveries",
        f"insert into sereno.failed_deliveries values ({number}, 'dead', 'pager', '')",
        f"update sereno.failed_deliveries set delivery_id = {number + 1}",
    ):
        connection.execute(wrong.encode())
        assert set(broken(app)) == {"failed_listed"}


# Below 200,000 newer ones


@pytest.fixture(scope="module")
def crowded(shared_database_url: str) -> Iterator[Connection]:
    """Insert old deliveries in all states, by two channels, of ten tenants; and many newer ones that arrived."""
    with line(shared_database_url) as opened:
        opened.prepare_threshold = None
        opened.execute(
            "insert into sereno.recipients (tenant, key) select 'r' || n % 10, 'user:' || n "
            "from generate_series(1, 1000) as n"
        )
        opened.execute(
            "insert into sereno.events (tenant, type, subject, payload, channels) "
            "select 'r' || n % 10, 'tender.' || n % 5, 'T-' || n, '{}', '{email}' from generate_series(1, 2000) as n"
        )
        insert = (
            "insert into sereno.deliveries "
            "(event_id, recipient_id, address_id, channel, tenant, state, reason, due_at) "
            "select n % 2000 + 1, n % 1000 + 1, n, case when n % 3 = 0 then 'push' else 'email' end, "
            "'r' || (n % 2000 + 1) % 10, {state}, 'x', sereno.now() from generate_series({first}, {last}) as n"
        )
        states = f"('{{{','.join(STATES)}}}'::text[])[n % {len(STATES)} + 1]"
        opened.execute(insert.format(state=states, first=1, last=OLD).encode())
        opened.execute(insert.format(state="'delivered'", first=OLD + 1, last=OLD + NEWER).encode())
        opened.execute("vacuum analyze sereno.deliveries, sereno.failed_deliveries, sereno.events, sereno.recipients")
        yield opened


def searched(text: str) -> Any:
    return search_params(text, DELIVERY_FIELDS, datetime.now(UTC))


FAILED_BY_PUSH = DeliveryFilter(search_params=searched("state:failed,dead channel:push"))
DEAD_OF_TYPE = DeliveryFilter(states=["dead"], search_params=searched("event:*.2 reason:x"))
NOT_ARRIVED = DeliveryFilter(search_params=searched("subject:T-77 -state:delivered"))
# A filter, and the same as a condition in SQL.
FILTERS: tuple[tuple[DeliveryFilter, str], ...] = (
    (DeliveryFilter(states=["dead"]), "d.state = 'dead'"),
    (DeliveryFilter(states=["dead", "unknown"], channel="push"), "d.state in ('dead', 'unknown') and channel = 'push'"),
    (DeliveryFilter(states=["bounced"], tenant="r3"), "d.state = 'bounced' and d.tenant = 'r3'"),
    (
        DeliveryFilter(states=["invalid", "expired"], tenant="r3", channel="email"),
        "d.state in ('invalid', 'expired') and d.tenant = 'r3' and channel = 'email'",
    ),
    (DeliveryFilter(states=["failed"], type="tender.4"), "d.state = 'failed' and e.type = 'tender.4'"),
    (FAILED_BY_PUSH, "d.state in ('failed', 'dead') and channel = 'push'"),
    (DEAD_OF_TYPE, "d.state = 'dead' and e.type = 'tender.2'"),
    (DeliveryFilter(subject="T-77"), "subject = 'T-77'"),
    (DeliveryFilter(subject="T-77", states=["dead", "skipped"]), "subject = 'T-77' and d.state in ('dead', 'skipped')"),
    (NOT_ARRIVED, "subject = 'T-77' and d.state <> 'delivered'"),
    (DeliveryFilter(recipient="user:7", tenant="r7", states=["dead"]), "r.key = 'user:7' and d.state = 'dead'"),
)


@pytest.mark.slow
def test_old_deliveries_are_listed_page_by_page(crowded: Connection, subtests: pytest.Subtests) -> None:
    for wanted, condition in FILTERS:
        with subtests.test(wanted=str(wanted)):
            truth = crowded.execute(
                "select d.id from sereno.deliveries d join sereno.events e on e.id = event_id "
                f"join sereno.recipients r on r.id = recipient_id where {condition} order by d.id desc".encode()
            ).fetchall()
            found: list[int] = []
            while page := run(crowded, lists.deliveries(wanted, before=found[-1] if found else None, limit=400)):
                found += [each.id for each in page]
            assert found == [number for (number,) in truth] != []
    # A list that also has others finds these among the newest only.
    mixed = run(crowded, lists.deliveries(DeliveryFilter(states=["dead", "skipped"]), before=None, limit=100))
    assert {each.state for each in mixed} == {"dead"}


@pytest.mark.slow
def test_old_failed_deliveries_are_counted_and_selected_to_be_requeued(crowded: Connection) -> None:
    dead = one(crowded, "select count(*) from sereno.deliveries where state = 'dead'")
    assert dead > 1000
    wanted = DeliveryFilter(states=["dead"], channel="push")
    by_push = one(crowded, "select count(*) from sereno.deliveries where state = 'dead' and channel = 'push'")
    assert run(crowded, bulk.count_deliveries(wanted)).value == by_push
    found = run(crowded, requeueable(wanted))
    assert (len(found), {(each.state, each.channel) for each in found}) == (by_push, {("dead", "push")})
    assert len(run(crowded, requeueable(DeliveryFilter(states=["dead"])))) == dead


@pytest.mark.slow
def test_lists_of_old_deliveries_read_what_they_show(crowded: Connection, subtests: pytest.Subtests) -> None:
    """Custom and generic plans use the indexes; a page without other conditions reads no more rows than it shows."""
    for wanted, _ in FILTERS:
        for before in (None, 5000):
            with subtests.test(wanted=str(wanted), before=before):
                statement = next(lists.deliveries(wanted, before=before, limit=50))
                top = plan(crowded, "notifications/deliveries/lists", "list", statement.params)
                ways = {table: accesses(top, table) for table in ("deliveries", "failed_deliveries", "events")}
                assert not {each.how for used in ways.values() for each in used} & {"Seq Scan", "Sample Scan"}, ways
                assert all(each.bounded for each in ways["failed_deliveries"])
    for wanted, index in (
        (FILTERS[0][0], "failed_deliveries_of_state"),
        (FILTERS[1][0], "failed_deliveries_of_channel"),
        (FILTERS[2][0], "failed_deliveries_of_tenant"),
    ):
        with subtests.test(wanted=str(wanted)):
            statement = next(lists.deliveries(wanted, before=5000, limit=50))
            top = explained(crowded, statement.sql, statement.params)
            used = [
                node for node in nodes(top) if node["Actual Rows"] and "failed_deliveries" in node.get("Index Name", "")
            ]
            assert {node["Index Name"] for node in used} == {index}
            assert rows_read(top, "deliveries") == 50


@pytest.mark.slow
def test_counts_of_failed_deliveries_do_not_read_the_others(crowded: Connection) -> None:
    statement = next(bulk.count_deliveries(DeliveryFilter(states=["dead"])))
    top = explained(crowded, statement.sql, statement.params)
    assert rows_read(top, "deliveries") == one(crowded, "select count(*) from sereno.deliveries where state = 'dead'")
    generic = accesses(plan(crowded, "jobs/bulk", "matching_deliveries", statement.params), "failed_deliveries")
    assert "Seq Scan" not in {each.how for each in generic if isinstance(each, Access)}


def explained(connection: Connection, sql: str, params: Any) -> dict[str, Any]:
    (((found,),),) = connection.execute(f"explain (analyze, format json) {sql}".encode(), params).fetchall()
    top: dict[str, Any] = found["Plan"]
    return top


def rows_read(top: dict[str, Any], table: str) -> int:
    """Return how many rows of a table the scans of a plan have read."""
    found = [node for node in nodes(top) if node.get("Relation Name") == table]
    read = [(node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in found]
    return int(sum(read))
