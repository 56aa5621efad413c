"""Lines of the central log: found by a search along an index, page by page, and deleted after their retention."""

import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from sereno.database.statement import queries, run
from sereno.errors import InvalidArguments
from sereno.telemetry import central_log, log_queries
from sereno.telemetry.log_queries import LogFilter
from sereno.telemetry.log_search import lines_wanted, list_lines, new_lines
from tests.database.plans import GENERIC_PLAN_SINCE, numbered
from tests.facts import advance, one

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
LINES = (
    # level, event, message, tenant, job, task, queue, trace, session, hours ago
    ("warning", "job.retry", "job 1 menu: retry: OSError('Connection reset')", "r42", 1, "menu", "ifood", "t-1", 7, 50),
    ("error", "job.dead", "job 1 menu: dead: failed 3 times", "r42", 1, "menu", "ifood", "t-1", 7, 30),
    ("info", "job.log", "100% of it_is done", "r43", 2, "bill", "default", "t-2", None, 3),
    ("error", "session.lost", "the lease is lost", None, None, None, None, None, 7, 2),
    ("warning", "job.log", "slow", "r43", 3, "menu", "default", "t-1", None, 1),
)


@pytest.fixture
def lines(connection: psycopg.Connection) -> list[int]:
    """Return the ids of the lines, in the order above."""
    insert = (
        "insert into sereno.logs (level, event, message, tenant, job_id, task, queue, trace_id, session, at) values "
    )
    values = "(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) returning id"
    return [one(connection, insert + values, *line[:-1], NOW - timedelta(hours=line[-1])) for line in LINES]


# A search, and the positions of the lines that it finds.
SEARCHES: tuple[tuple[str, list[int]], ...] = (
    ("", [4, 3, 2, 1, 0]),
    ("job:1", [1, 0]),
    ("job:1,3", [4, 1, 0]),
    ("-job:1", [4, 3, 2]),
    ("trace:t-1 tenant:r43", [4]),
    ("trace:t-*", [4, 2, 1, 0]),
    ("tenant:r42", [1, 0]),
    ("tenant:r42 tenant:r43", []),
    ("-tenant:*", [3]),
    ("event:job.dead", [1]),
    ("event:job.*", [4, 2, 1, 0]),
    ("-event:job.log,job.dead", [3, 0]),
    ("level:warning,error -level:error", [4, 0]),
    ("task:menu queue:ifood", [1, 0]),
    ("session:7", [3, 1, 0]),
    ("connection", [0]),
    ('"lease is"', [3]),
    ("job -retry", [1]),
    ("100%", [2]),
    ("it_is", [2]),
    ("itxis", []),
    ("at:2026-11-13", [0]),
    ("at:..2026-11-14", [1, 0]),
    ("at:2h..", [4, 3]),
    ("at:>2026-11-15T09:30 at:<2026-11-15T10:30", [3]),
    ("at:1d.. tenant:r43", [4, 2]),
)


def test_a_search_finds_lines(connection: psycopg.Connection, lines: list[int], subtests: pytest.Subtests) -> None:
    for search, expected in SEARCHES:
        with subtests.test(search=search):
            found = run(connection, list_lines(lines_wanted(search, NOW)))
            assert [lines.index(line.id) for line in found.items] == expected


def test_invalid_searches_are_refused(subtests: pytest.Subtests) -> None:
    for search, message in (
        ("jobs:1", "did you mean job?"),
        ("job:one", '"one" is not a number'),
        ("session:" + "9" * 19, "is not a number"),
        ("level:loud", "loud is not a value of level"),
        ("at:soon", "is not a time"),
        ("-at:1h..", "cannot be negated"),
    ):
        with subtests.test(search=search), pytest.raises(InvalidArguments, match=message):
            lines_wanted(search, NOW)


def test_lines_are_paged_and_new_lines_are_found(connection: psycopg.Connection, lines: list[int]) -> None:
    first = run(connection, list_lines(limit=2))
    assert ([line.id for line in first.items], first.next) == (lines[:2:-1], lines[3])
    rest = run(connection, list_lines(limit=3, before=first.next))
    assert ([line.id for line in rest.items], rest.next) == (lines[2::-1], None)
    assert [line.id for line in run(connection, new_lines(LogFilter(), lines[1]))] == lines[2:]


def test_a_line_written_late_is_found_by_the_time_it_was_logged(connection: psycopg.Connection) -> None:
    insert = "insert into sereno.logs (level, event, message, at) values ('info', 'x', %s, %s)"
    for message, minutes in (("one", 0), ("two", 9), ("late", 0), ("later", 60), ("last", 61)):
        connection.execute(insert, [message, NOW + timedelta(minutes=minutes)])
    found = run(connection, list_lines(lines_wanted("at:2026-11-15T12:00", NOW)))
    assert [line.message for line in found.items] == ["late", "one"]


@pytest.mark.slow
def test_a_list_reads_one_index_and_stops_at_its_limit(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.logs (at, level, event, message, tenant, job_id, trace_id) "
        "select sereno.now(), 'info', 'e' || n % 5, 'm', 't' || n % 10, n % 1000, 'x' || n % 100 "
        "from generate_series(1, 30000) as n"
    )
    connection.execute("analyze sereno.logs")
    sql = queries("telemetry/log_queries")["list"]
    if connection.info.server_version >= GENERIC_PLAN_SINCE:
        generic = connection.execute(f"explain (generic_plan) {numbered(sql)}".encode()).fetchall()
        assert [row[0] for row in generic if "Seq Scan on logs" in row[0] or "Bitmap" in row[0]] == []
    # The plan reads no more rows than the named value has.
    bounds = {"job:7": 30, "trace:x7": 300, "tenant:t7": 3000, "tenant:none": 1, "level:info": 20, "at:..2026-01-01": 1}
    for search, bound in ({"": 20} | bounds).items():
        params = lines_wanted(search, NOW).params() | {
            "limit": 20,
            "before": None,
            "after": 0,
            "window": log_queries.WINDOW,
        }
        plan = "\n".join(row[0] for row in connection.execute(f"explain analyze {sql}".encode(), params))
        touched = [float(rows) for rows in re.findall(r"actual time=\S+ rows=([\d.]+)", plan)]
        assert "Seq Scan on logs" not in plan, (search, plan)
        assert max(touched) <= bound, (search, plan)


def test_the_oldest_lines_are_deleted_first(connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(central_log, "BATCH", 10)
    insert = "insert into sereno.logs (at, level, event, message) select sereno.now(), 'info', 'x', n::text from "
    connection.execute((insert + "generate_series(1, 25) as n").encode())
    advance(connection, 3600)
    connection.execute((insert + "generate_series(26, 30) as n").encode())
    assert [run(connection, central_log.forget(60.0)) for _ in range(3)] == [True, True, False]
    assert one(connection, "select array_agg(message order by id) from sereno.logs") == ["26", "27", "28", "29", "30"]
