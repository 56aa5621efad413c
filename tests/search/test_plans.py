"""Every search reads a window along an index; no list scans a whole table."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any, NamedTuple

import pytest

from sereno.database.statement import Operation
from sereno.jobs.filters import DeliveryFilter, ScheduleFilter
from sereno.notifications import operations as notifications
from sereno.notifications.search_fields import DELIVERY_FIELDS, EVENT_FIELDS, RECIPIENT_FIELDS
from sereno.schedules.lists import list_schedules
from sereno.schedules.search_fields import SCHEDULE_FIELDS
from sereno.search.search_filter import search_params
from sereno.search.sql_terms import SearchParams
from sereno.search.syntax import SearchField
from tests.database.plans import Access, accesses, plan
from tests.jobs.job_steps import Connection, line

ROWS = 20_000
FULL_SCANS = {"Seq Scan", "Bitmap Heap Scan", "Sample Scan"}


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """Create many rows of each kind."""
    with line(database_url) as opened:
        # A generic plan is explained without parameter values.
        opened.prepare_threshold = None
        fill(opened)
        yield opened


INSERTS = (
    """insert into sereno.recipients (tenant, key)
       select 'r' || n %% 9, 'user:' || n from generate_series(1, %s) as n""",
    """insert into sereno.addresses (recipient_id, channel, address)
       select n, 'email', 'a' || n from generate_series(1, %s) as n""",
    """insert into sereno.events (tenant, type, subject, trace, payload, channels)
       select 'r' || n %% 9, 'tender.' || n %% 5, 'T-' || n, 't-' || n, '{"n": 1}', '{email}'
       from generate_series(1, %s) as n""",
    """insert into sereno.deliveries (event_id, recipient_id, channel, due_at, tenant)
       select n, n, 'email', sereno.now(), 'r' || n %% 9 from generate_series(1, %s) as n""",
    """insert into sereno.schedules (key, task, rule, next_run_at, tenant)
       select 'menu:' || n, 'menu', '{"kind": "every", "interval": 60}', sereno.now() + make_interval(secs => n),
              'r' || n %% 9
       from generate_series(1, %s) as n""",
)


def fill(connection: Connection) -> None:
    for statement in INSERTS:
        connection.execute(statement.encode(), [ROWS])


def accessed(connection: Connection, operation: Operation[Any]) -> dict[str, set[Access]]:
    """Return the tables that an operation reads, and how, for custom and generic plans."""
    found: dict[str, set[Access]] = {}
    rows: list[Any] = []
    try:
        statement = next(operation)
        while True:
            name = re.match(r"/\* sereno\.([\w.]+)\.(\w+) \*/", statement.sql)
            assert name is not None
            top = plan(connection, name[1].replace(".", "/"), name[2], statement.params)
            for table in ("deliveries", "events", "recipients", "addresses", "schedules"):
                found.setdefault(table, set()).update(accesses(top, table))
            rows = connection.execute(statement.sql.encode(), statement.params).fetchall()
            statement = operation.send(rows)
    except StopIteration:
        return found


def parsed(text: str, fields: tuple[SearchField, ...]) -> SearchParams | None:
    return search_params(text, fields, datetime.now(UTC))


DELIVERIES = ("state:sent", "unmatched", "event:bill.* recipient:ana", "id:7", "event_id:7", "age:<1h")
EVENTS = ("type:bill.*", "nothing", "payload.n:2", "id:7", "subject:T-7", "trace:t-7")
RECIPIENTS = ("unmatched", "channel:push data.n:2", "tenant:r1 key:user:1", "tenant:r1 zone:UTC")
SCHEDULES = ("nothing", "key:menu:7", "key:menu:9*", "tenant:r1 task:x", "state:paused args.n:2")


class SearchedList(NamedTuple):
    """A search of a list: the statements of the list, its table, and the indexes along which it may be read."""

    text: str
    operation: Operation[Any]
    table: str
    indexes: set[str]


def searched_lists() -> Iterator[SearchedList]:
    for text in DELIVERIES:
        wanted = DeliveryFilter(search_params=parsed(text, DELIVERY_FIELDS))
        indexes = {"deliveries_pkey", "deliveries_once", "deliveries_of_recipient"}
        yield SearchedList(text, notifications.list_deliveries(wanted), "deliveries", indexes)
    for text in EVENTS:
        events = notifications.list_events(search_params=parsed(text, EVENT_FIELDS))
        yield SearchedList(text, events, "events", {"events_pkey", "events_subject", "events_trace"})
    for text in RECIPIENTS:
        recipients = notifications.list_recipients(search_params=parsed(text, RECIPIENT_FIELDS))
        indexes = {"recipients_pkey", "recipients_in_order", "recipients_key"}
        yield SearchedList(text, recipients, "recipients", indexes)
    for text, soonest in product(SCHEDULES, (False, True)):
        schedules = list_schedules(ScheduleFilter(search_params=parsed(text, SCHEDULE_FIELDS)), soonest=soonest)
        yield SearchedList(text, schedules, "schedules", {"schedules_key", "schedules_tenant", "schedules_due"})


@pytest.mark.slow
def test_every_search_reads_along_an_index(connection: Connection, subtests: pytest.Subtests) -> None:
    """Without statistics, and with them."""
    for statistics in ("never analysed", "analysed"):
        if statistics == "analysed":
            connection.execute("analyze")
        for text, operation, table, indexes in searched_lists():
            with subtests.test(statistics=statistics, table=table, text=text):
                found = accessed(connection, operation)
                assert {each.by for each in found[table]} <= indexes
                _assert_no_full_scan(found)


def _assert_no_full_scan(found: dict[str, set[Access]]) -> None:
    """Lists are read along an index, and the rows that belong to them by key."""
    for table, used in found.items():
        assert not {each.how for each in used} & FULL_SCANS, (table, used)
