"""Every search reads a window along an index; no list scans a whole table."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

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


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def connection(request: pytest.FixtureRequest, server_url: str, template: str) -> Iterator[Connection]:
    """Create many rows of each kind; with statistics, and without."""
    name = f"search_{template}_{request.param.replace(' ', '_')}"
    with line(server_url) as admin:
        admin.execute(f"create database {name} template {template}".encode())
        with line(server_url.replace("/postgres?", f"/{name}?", 1)) as opened:
            # A generic plan is explained without parameter values.
            opened.prepare_threshold = None
            fill(opened)
            if request.param == "analysed":
                opened.execute("analyze")
            yield opened
        admin.execute(f"drop database {name} with (force)".encode())


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


@pytest.mark.parametrize(
    "text", ["state:sent", "unmatched", "event:bill.* recipient:ana", "id:7", "event_id:7", "age:<1h"]
)
def test_deliveries_are_read_along_an_index(connection: Connection, text: str) -> None:
    found = accessed(
        connection, notifications.list_deliveries(DeliveryFilter(search_params=parsed(text, DELIVERY_FIELDS)))
    )
    assert {each.by for each in found["deliveries"]} <= {
        "deliveries_pkey",
        "deliveries_once",
        "deliveries_of_recipient",
    }
    _assert_no_full_scan(found)


@pytest.mark.parametrize("text", ["type:bill.*", "nothing", "payload.n:2", "id:7", "subject:T-7", "trace:t-7"])
def test_events_are_read_along_an_index(connection: Connection, text: str) -> None:
    found = accessed(connection, notifications.list_events(search_params=parsed(text, EVENT_FIELDS)))
    assert {each.by for each in found["events"]} <= {"events_pkey", "events_subject", "events_trace"}
    _assert_no_full_scan(found)


@pytest.mark.parametrize("text", ["unmatched", "channel:push data.n:2", "tenant:r1 key:user:1", "tenant:r1 zone:UTC"])
def test_recipients_are_read_along_an_index(connection: Connection, text: str) -> None:
    found = accessed(connection, notifications.list_recipients(search_params=parsed(text, RECIPIENT_FIELDS)))
    assert {each.by for each in found["recipients"]} <= {"recipients_pkey", "recipients_in_order", "recipients_key"}
    _assert_no_full_scan(found)


@pytest.mark.parametrize("text", ["nothing", "key:menu:7", "key:menu:9*", "tenant:r1 task:x", "state:paused args.n:2"])
@pytest.mark.parametrize("soonest", [False, True])
def test_schedules_are_read_along_an_index(connection: Connection, text: str, soonest: bool) -> None:
    wanted = ScheduleFilter(search_params=parsed(text, SCHEDULE_FIELDS))
    found = accessed(connection, list_schedules(wanted, soonest=soonest))
    assert {each.by for each in found["schedules"]} <= {"schedules_key", "schedules_tenant", "schedules_due"}
    _assert_no_full_scan(found)


def _assert_no_full_scan(found: dict[str, set[Access]]) -> None:
    """Lists are read along an index, and the rows that belong to them by key."""
    for table, used in found.items():
        assert not {each.how for each in used} & FULL_SCANS, (table, used)
