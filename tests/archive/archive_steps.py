"""Rows of every kind, and queries that count them in their tables, in batches and in files."""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import msgspec
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from sereno import Sereno
from sereno.archive.archiver import Archiver
from sereno.archive.orders import OwnTable
from tests.shared_server import MEMORY

DAY = 86400
Row: TypeAlias = tuple[str, tuple[str | None, ...]]
# Tables that hold young rows of sereno.
HOT = {
    "jobs": "sereno.history",
    "attempts": "sereno.attempts",
    "deliveries": "sereno.deliveries",
    "receipts": "sereno.receipts",
    "events": "sereno.events",
    "fires": "sereno.fires",
    "logs": "sereno.logs",
}
# Files of the rows of `add_some`.
SOME_FILES = 6
TENDERS = OwnTable("public.tenders", "published_at", 30.0 * DAY)


@contextmanager
def cold_place() -> Iterator[Path]:
    """A directory that does not exist yet, in memory if possible: archived files are synced to disk."""
    with TemporaryDirectory(prefix="sereno-cold-", dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory) / "cold"


def archiver(app: Sereno, place: Path, *tables: OwnTable, **settings: Any) -> Archiver:
    """Return an archiver that drops at once unless the settings say otherwise."""
    chosen: dict[str, Any] = {
        "archive_url": f"file://{place}",
        "archive_grace_days": 0,
        "keep_dead_days": 30,
        "keep_deliveries_days": 30,
        "keep_events_days": 30,
        "keep_history_days": 30,
    }
    return Archiver(app.database, msgspec.structs.replace(app.settings, **chosen | settings), tables)


def add_jobs(
    connection: psycopg.Connection, first: int, count: int, state: str = "succeeded", ahead: str = "0"
) -> None:
    """Add jobs that finish now or later; each has two attempts before its last one."""
    connection.execute(
        "insert into sereno.history (id, session_id, finished_at, started_at, run_at, created_at, attempt, failures, "
        "crashes, snoozes, releases, priority, state, queue, task, tenant, tags, args, reason) "
        "select n, 1, at, at - interval '1 second', at, at, 3, 2, 0, 0, 0, 5, %(state)s, 'default', 'work', "
        "case when n %% 2 = 0 then 'r' || n end, array['ä', 'a,b', ''], "
        "jsonb_build_object('n', n, 'text', E'\\t\"\\n'), "
        "case when %(state)s = 'dead' then 'it failed' end "
        "from generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) as n, "
        "(values (sereno.now() + %(ahead)s::interval)) as moment (at)",
        {"first": first, "count": count, "state": state, "ahead": ahead},
    )
    connection.execute(
        "insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, error_message) "
        "select n, number, 1, sereno.now() - make_interval(secs => 20 - 5 * number), "
        "sereno.now() - make_interval(secs => 16 - 5 * number), 'retry', 'it failed' "
        "from generate_series(%s::bigint, %s::bigint) as n, generate_series(1, 2) as number",
        [first, first + count - 1],
    )


def add_deliveries(connection: psycopg.Connection, event: int, state: str = "delivered", count: int = 3) -> None:
    """Add deliveries of one event, each with two receipts and a provider id."""
    connection.execute(
        "with made as (insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at, sent_at) "
        "    select %s, n, 'email', %s, sereno.now(), sereno.now() from generate_series(1, %s) as n returning id), "
        "receipts as (insert into sereno.receipts (channel, receipt_id, delivery_id, outcome) "
        "    select 'email', id || '-' || n, id, 'delivered' from made, generate_series(1, 2) as n) "
        "insert into sereno.message_ids (channel, account, provider_id, delivery_id) "
        "select 'email', '', 'p-' || id, id from made",
        [event, state, count],
    )


def add_event(connection: psycopg.Connection, *, matched: bool = True) -> int:
    row = connection.execute(
        "insert into sereno.events (type, key, payload, channels, matched_at) "
        "values ('order.paid', gen_random_uuid(), '{\"n\": 1.50}', '{email}', "
        "case when %s then sereno.now() end) returning id",
        [matched],
    ).fetchone()
    assert row is not None
    return int(row[0])


def add_logs(connection: psycopg.Connection, count: int) -> None:
    connection.execute(
        "insert into sereno.logs (at, level, event, message, context) "
        "select sereno.now(), 'info', 'job.log', 'line ' || n, '{\"a\": [1, null]}' from generate_series(1, %s) as n",
        [count],
    )


def add_fires(connection: psycopg.Connection, count: int, ahead: str = "0") -> None:
    connection.execute(
        "insert into sereno.fires (planned_at, schedule_id, fired_at, job_id) "
        "select date_trunc('day', sereno.now()) + %s::interval + make_interval(secs => n), n %% 3, sereno.now(), n "
        "from generate_series(1, %s) as n",
        [ahead, count],
    )


def add_tenders(connection: psycopg.Connection, count: int) -> None:
    connection.execute(
        "create table if not exists public.tenders (code text, part integer, published_at timestamptz not null, "
        "price numeric(12, 2), data jsonb, tags text[], unit uuid, span interval, open boolean, raw bytea, "
        "ratio double precision, primary key (code, part))"
    )
    connection.execute(
        "insert into public.tenders select 'ä ' || n || E'\\n', n, sereno.now(), n + 0.50, "
        "jsonb_build_object('n', n), '{x,\"y z\"}', gen_random_uuid(), '1 day 2 hours', "
        "n %% 2 = 0, '\\x00ff', n / 3.0 from generate_series(1, %s) as n",
        [count],
    )


def add_everything(connection: psycopg.Connection, count: int = 20) -> None:
    """Add some rows of each kind, all of them now."""
    add_jobs(connection, 1, count)
    add_jobs(connection, 1001, 4, "cancelled")
    add_jobs(connection, 2001, 4, "dead")
    add_jobs(connection, 3001, 3, ahead="20 days")
    add_deliveries(connection, add_event(connection))
    add_event(connection)
    add_logs(connection, count)
    add_fires(connection, count)
    add_fires(connection, 3, ahead="20 days")
    add_tenders(connection, count)


def add_some(connection: psycopg.Connection, count: int = 20) -> None:
    """Add rows of jobs with attempts, events, logs, fires and a user's table, all of them now: `SOME_FILES` files."""
    add_jobs(connection, 1, count)
    add_event(connection)
    add_logs(connection, count)
    add_fires(connection, count)
    add_tenders(connection, count)


def everything(connection: psycopg.Connection, place: Path, own: Iterable[str] = ("public.tenders",)) -> Counter[Row]:
    """Return every row as a multiset: in its table, in a batch, or in the files of a dropped batch."""
    with connection.transaction():
        for setting in ("timezone = 'UTC'", "datestyle = 'ISO'", "intervalstyle = 'postgres'", "bytea_output = 'hex'"):
            connection.execute(f"set local {setting}".encode())
        found: Counter[Row] = Counter()
        for kind, table in (HOT | {name: name for name in own}).items():
            if connection.execute("select to_regclass(%s) is not null", [table]).fetchone() == (True,):
                found.update(rows_of(connection, kind, table))
        batches = connection.execute("select id, kind, held_in from sereno.archive_batches").fetchall()
        for batch, kind, held in batches:
            if held is not None:
                found.update(rows_of(connection, kind, f'sereno_archive."{held}"'))
            else:
                found.update(filed(connection, place, batch, kind))
    return found


def rows_of(connection: psycopg.Connection, kind: str, table: str) -> Counter[Row]:
    """Return the rows of a table, as PostgreSQL writes them."""
    columns = connection.execute(
        "select attname, format_type(atttypid, null) from pg_attribute "
        "where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum",
        [table],
    ).fetchall()
    texts = ", ".join('"' + name.replace('"', '""') + '"::text' for name, _ in columns)
    found = connection.execute(f"select {texts} from {table}".encode()).fetchall()
    types = [type_ for _, type_ in columns]
    return Counter(
        (kind, tuple(_alike(value, type_) for value, type_ in zip(row, types, strict=True))) for row in found
    )


def _alike(text: str | None, type_: str) -> str | None:
    """Normalize: floats are compared with their own precision, and trailing blanks of a char are removed."""
    match type_.partition("(")[0]:
        case "real" if text is not None:
            return repr(struct.unpack("f", struct.pack("f", float(text)))[0])
        case "double precision" if text is not None:
            return repr(float(text))
        case "character" if text is not None:
            return text.rstrip(" ")
    return text


def filed(connection: psycopg.Connection, place: Path, batch: int, kind: str) -> Counter[Row]:
    """Return the rows in the files of a batch, read without sereno's code."""
    objects = connection.execute("select object from sereno.archive_files where batch_id = %s", [batch]).fetchall()
    columns = connection.execute("select columns from sereno.archive_batches where id = %s", [batch]).fetchall()[0][0]
    types = [column["type"] for column in columns]
    found: Counter[Row] = Counter()
    for (name,) in objects:
        table = pq.read_table(place / name)
        columns = [
            [_alike(as_text(value), type_) for value in _values(column)]
            for column, type_ in zip(table.columns, types, strict=True)
        ]
        found.update((kind, row) for row in zip(*columns, strict=True))
    return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    return list(column.to_pylist())


def as_text(value: Any) -> str | None:
    """Return a value of a file as PostgreSQL writes it."""
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case datetime():
            micros = f"{value.microsecond:06}".rstrip("0")
            zone = "+00" if value.tzinfo else ""
            seconds = value.replace(tzinfo=None).isoformat(" ", "seconds")
            return f"{seconds}{'.' if micros else ''}{micros}{zone}"
        case date():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case float():
            return repr(value)
        case _:
            return str(value)


def places_of(connection: psycopg.Connection) -> Counter[str]:
    """Count the batches by state."""
    rows = connection.execute(
        "select case when dropped_at is not null then 'dropped' "
        "when verified_at is not null then 'verified' else 'moved' end from sereno.archive_batches"
    ).fetchall()
    return Counter(row[0] for row in rows)
