"""Whatever maintenance deletes, it deletes by pages, and says when there is more."""

from collections.abc import Callable, Iterator

import pytest

from sereno.store import delivery_figures, error_groups, limits, minutes, sessions, tokens
from sereno.store.statement import Operation
from tests.facts import one
from tests.store.acts import Connection, do, line

LONG_AGO = "sereno.now() - interval '200 days' - make_interval(secs => n)"
ROWS = "from generate_series(1, 25) as n"
Forget = Callable[[], Operation[bool]]

# A table, how it gets 25 rows that are too old, and what deletes them.
OLD: dict[str, tuple[str, Forget]] = {
    "sessions": (
        (
            "(host, pid, version, queues, tasks, lease_until, state, ended_at) "
            f"select 'h', 1, '0', '{{}}', '{{}}', {LONG_AGO}, 'closed', {LONG_AGO}"
        ),
        sessions.forget_ended,
    ),
    "unique_keys": (f"(task, unique_key, job_id, until) select 't', n::text, n, {LONG_AGO}", sessions.forget_ended),
    "answers": (f"(who, key, request, at) select 'w', n::text, '', {LONG_AGO}", tokens.forget_answers),
    "minutes": (f"(minute, queue, task, waits, runs) select {LONG_AGO}, 'q', 't', '{{}}', '{{}}'", minutes.forget),
    "tenant_hours": (f"(hour, tenant) select {LONG_AGO}, 't'", minutes.forget),
    "tries": (f"(hour, task, tries) select {LONG_AGO}, 't', '{{}}'", minutes.forget),
    "error_hours": (f"(fingerprint, hour, tenant, count) select 'f', {LONG_AGO}, 't', 1", minutes.forget),
    "shares": ("(queue, key, clock) select 'q', n::text, 0", limits.sweep_shares),
}


@pytest.fixture
def connection(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    for module in (delivery_figures, error_groups, limits, minutes, sessions, tokens):
        monkeypatch.setattr(module, "PAGE", 10)
    with line(database_url) as opened:
        yield opened


@pytest.mark.parametrize("table", OLD)
def test_a_page_is_bounded_and_the_next_one_goes_on(connection: Connection, table: str) -> None:
    columns, forget = OLD[table]
    connection.execute(f"insert into sereno.{table} {columns} {ROWS}".encode())
    left = f"select count(*) from sereno.{table}"
    found = [(do(connection, forget()), one(connection, left)) for _ in range(3)]
    assert found == [(True, 15), (True, 5), (False, 0)]
