"""The log writer stores log lines in the database, without slowing or failing the code that logs."""

import json
import logging
import subprocess
import sys
from typing import Any

import msgspec
import psycopg
import pytest

from sereno import Backoff, Context, Sereno
from sereno.telemetry import central_log
from sereno.telemetry.log_events import JobLogger, emit
from sereno.telemetry.log_record import as_line
from sereno.worker import log_writer
from sereno.worker.log_writer import DROPPED, LogBuffer, LogWriter
from tests.facts import auntil, one, state

ONCE = Backoff(0)


def messages_of(connection: psycopg.Connection, event: str = "job.log") -> list[str]:
    rows = connection.execute("select message from sereno.logs where event = %s order by id", [event]).fetchall()
    return [row[0] for row in rows]


@pytest.fixture
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the writer retry at once after an error."""
    monkeypatch.setattr(log_writer, "AFTER_ERROR", 0.01)


def writer_of(app: Sereno, **settings: Any) -> LogWriter:
    return LogWriter(app.database.url, msgspec.structs.replace(app.settings, **settings))


@pytest.mark.slow
async def test_lines_of_handlers_and_of_the_engine_are_stored(app: Sereno, connection: psycopg.Connection) -> None:
    async def call_bank() -> None:
        raise ValueError("no reply")

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        ctx.log.info("below the stored level")
        ctx.log.warning("%s is slow", "the bank", extra={"bank": "north", "api_key": "k-123"})
        try:
            await call_bank()
        except ValueError:
            ctx.log.exception("the bank does not reply")
            raise

    @app.task
    def in_a_thread(ctx: Context) -> None:
        ctx.log.error("from a thread")

    async with app.working():
        job = await work.using(tenant="r42", trace="t-1").aenqueue()
        other = await in_a_thread.aenqueue()
        await auntil(lambda: state(connection, job.id) == "dead" and state(connection, other.id) == "succeeded")
    columns = "level, event, message, tenant, job_id, task, queue, trace_id, context ->> 'attempt', traceback"
    first, second, third = connection.execute(
        f"select {columns} from sereno.logs where job_id = %s order by id".encode(), [job.id]
    ).fetchall()
    fields = ("r42", job.id, "work", "default", "t-1", "1")
    assert first == ("warning", "job.log", "the bank is slow", *fields, None)
    assert second[:3] == ("error", "job.log", "the bank does not reply")
    assert (third[:2], third[3:9]) == (("error", "job.dead"), fields)
    assert second[9].rstrip().endswith("ValueError: no reply")
    assert one(connection, "select context from sereno.logs where message = 'the bank is slow'") == {
        "attempt": 1, "bank": "north", "api_key": "********",
    }  # fmt: skip
    assert one(connection, "select session from sereno.logs where event = 'job.dead'") is not None
    assert one(connection, "select message from sereno.logs where job_id = %s", other.id) == "from a thread"
    assert one(
        connection, "select sereno.now() - min(at) between interval '0' and interval '1 minute' from sereno.logs"
    )


async def test_nothing_is_stored_when_the_central_log_is_off(app: Sereno, connection: psycopg.Connection) -> None:
    async with writer_of(app, keep_logs="off"):
        emit(logging.ERROR, "job.log", "not stored")
        assert not any(isinstance(each, LogBuffer) for each in logging.getLogger("sereno").handlers)
    assert one(connection, "select count(*) from sereno.logs") == 0


@pytest.mark.slow
async def test_a_flood_of_lines_is_dropped_and_counted_without_slowing_a_job(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "MOST_LINES", 1000)
    many = 3000

    @app.task(timeout="30s", retry=ONCE)
    async def work(ctx: Context) -> None:
        for number in range(many):
            ctx.log.warning("drop %s", number)

    async with app.working():
        job = await work.aenqueue()
        await auntil(lambda: state(connection, job.id) == "succeeded")
        await auntil(lambda: messages_of(connection, DROPPED))
        await auntil(lambda: messages_of(connection)[-1:] == [f"drop {many - 1}"])
    stored, reports = messages_of(connection), messages_of(connection, DROPPED)
    dropped = sum(int(line.rpartition(": ")[2].replace(",", "")) for line in reports)
    assert len(stored) + dropped == many
    # The oldest lines were dropped; the rest is in order.
    assert stored == [f"drop {number}" for number in range(many - len(stored), many)]


@pytest.mark.slow
async def test_lines_wait_for_an_unreachable_database(
    app: Sereno, connection: psycopg.Connection, server_url: str, retries_at_once: None
) -> None:
    log = JobLogger({"job_id": 7})
    name = connection.info.dbname
    admin = psycopg.connect(server_url, autocommit=True)
    async with writer_of(app) as running:
        log.warning("before")
        await auntil(lambda: messages_of(connection) == ["before"])
        admin.execute(f"alter database {name} allow_connections false".encode())
        terminate = (
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'sereno log'"
        )
        assert one(connection, f"{terminate} and datname = %s", name) == 1
        log.warning("meanwhile")
        tried = running.rounds
        await auntil(lambda: running.rounds > tried + 1)
        assert messages_of(connection) == ["before"]
        admin.execute(f"alter database {name} allow_connections true".encode())
        log.warning("after")
        await auntil(lambda: messages_of(connection) == ["before", "meanwhile", "after"])
    admin.close()
    assert one(connection, "select count(*) from sereno.logs") == 3, "the writer stored its own errors"


async def test_errors_of_the_writer_are_logged_once_to_other_handlers(
    app: Sereno, connection: psycopg.Connection, caplog: pytest.LogCaptureFixture, retries_at_once: None
) -> None:
    log = JobLogger({})
    connection.execute("alter table sereno.logs rename to hidden")
    async with writer_of(app) as running:
        for number in range(3):
            log.warning("%s", number)
            tried = running.rounds
            await auntil(lambda tried=tried: running.rounds > tried + 1)  # type: ignore[misc]
        connection.execute("alter table sereno.hidden rename to logs")
        log.warning("again")
    assert [record.event for record in caplog.records].count("logs.unwritten") == 1  # type: ignore[attr-defined]
    assert messages_of(connection) == ["again"]
    assert messages_of(connection, DROPPED)[0].endswith(": 3")


async def test_the_last_lines_are_written_and_each_line_is_stored_once(
    app: Sereno, connection: psycopg.Connection
) -> None:
    async with writer_of(app), writer_of(app):
        for number in range(1200):
            emit(logging.WARNING, "job.log", f"line {number}")
    assert messages_of(connection) == [f"line {number}" for number in range(1200)]


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("cannot be converted")

    __repr__ = __str__


def deep(levels: int) -> Any:
    return {"in": deep(levels - 1)} if levels else "bottom"


HOSTILE = {
    "nul": "a\x00b",
    "half": "\ud83d",
    "huge": "x" * 5_000_000,
    "many": list(range(1_000_000)),
    "number": 10**5000,
    "nan": float("nan"),
    "bytes": b"\xff" * 100,
    "deep": deep(200),
    "object": Hostile(),
    "keys": {("a", 1): 1, "\x00": 2, "Password": "p-1", "deeper": {"X-API-Key": "p-2", "authorization": "p-3"}},
    "refresh_token": "p-4",
}


def record_of(message: Any, *args: Any, error: BaseException | None = None, **fields: Any) -> logging.LogRecord:
    """Return a record without a logger: the handlers of pytest would fail on these."""
    exc_info = (type(error), error, None) if error is not None else None
    made = logging.LogRecord("sereno.job", logging.WARNING, "", 0, message, args, exc_info)
    made.sereno_fields = {"tenant": "r4\x002", "job_id": "none", "trace_id": "t" * 501, "queue": None} | fields
    return made


def test_any_log_record_can_be_stored(app: Sereno, connection: psycopg.Connection) -> None:
    circle: dict[str, Any] = {}
    circle["circle"] = circle
    records = (
        record_of("half \ud83d and\x00 whole", **HOSTILE),
        record_of("%d", "no number", **circle),
        record_of("x" * 50_000),
        record_of("postgresql://ann:p-5@db/shop, Authorization: Bearer p-6p-6p-6p-6p-6p-6, ?token=p-7&page=2"),
        record_of("failed", error=ValueError("\x00" + "y" * 100_000 + "\ud83d p-ok")),
        record_of("the end"),
    )
    app.database.run(central_log.add([as_line(record, 1.0) for record in records], 1.0))
    lines = connection.execute("select message, context, tenant, trace_id, traceback from sereno.logs order by id")
    found = lines.fetchall()
    messages = [line[0] for line in found]
    assert messages[:2] == ["half ? and whole", "%d (its arguments do not match the format)"]
    assert messages[-1] == "the end"
    assert len(messages[2]) == 10_001
    assert messages[-3].startswith(
        "postgresql://ann:********@db/shop, Authorization: Bearer ********, ?token=********&"
    )
    assert found[-2][4].rstrip().endswith("? p-ok")
    assert len(found[-2][4]) <= 20_001
    assert all(len(json.dumps(line[1])) < 20_000 for line in found)
    # Values that cannot be stored unchanged are not stored as tenant or trace.
    assert {(line[2], line[3]) for line in found} == {(None, None)}
    stored = str(found)
    assert [secret for secret in (f"p-{number}" for number in range(1, 8)) if secret in stored] == []


def test_a_record_that_cannot_be_formatted_is_counted_as_dropped() -> None:
    buffer = LogBuffer(logging.WARNING, 1, lambda: None)
    buffer.handle(record_of(Hostile()))
    assert (buffer.waiting, buffer.dropped) == (0, 1)
    buffer.handle(record_of("well"))
    assert (buffer.waiting, buffer.dropped) == (1, 1)


def test_a_timeout_during_logging_is_not_swallowed() -> None:
    class Late:
        def __str__(self) -> str:
            raise TimeoutError

    record = logging.makeLogRecord({"levelno": logging.WARNING, "sereno_fields": {"late": Late()}})
    buffer = LogBuffer(logging.WARNING, 1, lambda: None)
    with pytest.raises(TimeoutError):
        buffer.handle(record)
    assert json.loads(as_line(logging.makeLogRecord({"name": "shop", "msg": "well", "levelno": 45}), 1.0)) == {
        "seen": 1.0, "level": "error", "event": "shop", "message": "well", "context": {},
    }  # fmt: skip


def test_the_buffer_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "MOST_BYTES", log_writer.MOST_BYTES // 10)
    monkeypatch.setattr(log_writer, "BATCH_BYTES", log_writer.BATCH_BYTES // 10)
    buffer = LogBuffer(logging.WARNING, 1, lambda: None)
    record = {"msg": "x" * 9000, "levelno": logging.INFO}
    for _ in range(250):
        buffer.handle(logging.makeLogRecord(record))
    assert buffer.waiting * 9000 < log_writer.MOST_BYTES
    assert buffer.waiting + buffer.dropped == 250
    batches = []
    while batch := buffer.take():
        batches.append(sum(len(line) for _, line in batch))
    assert max(batches) <= log_writer.BATCH_BYTES
    assert len(batches) > 10


PROGRAM = """
import asyncio, logging, sys
from sereno.worker.log_writer import LogWriter
from sereno.settings import Settings
from sereno.telemetry.log_events import emit

async def main():
    async with LogWriter(sys.argv[1], Settings()):
        emit(logging.WARNING, "job.log", "also written to stderr")
        emit(logging.INFO, "job.log", "below the stored level")

asyncio.run(main())
"""


@pytest.mark.slow
def test_warnings_go_to_stderr_if_logging_is_not_configured(database_url: str, connection: psycopg.Connection) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, database_url], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stderr.splitlines() == ["also written to stderr"]
    assert messages_of(connection) == ["also written to stderr"]


@pytest.mark.slow
async def test_one_of_the_log_writers_deletes_old_lines(
    app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute(
        "insert into sereno.logs (at, level, event, message) select sereno.now() - make_interval(days => "
        "case when n <= 12000 then 15 else 13 end), 'info', 'job.log', n::text from generate_series(1, 12010) as n"
    )
    monkeypatch.setattr(log_writer, "FIRST_CHECK", 0.0)
    async with writer_of(app, keep_logs="off"):
        await auntil(lambda: one(connection, "select count(*) from sereno.logs") == 10)
    assert one(connection, "select min(message::int) from sereno.logs") == 12001
