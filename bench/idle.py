"""Queries, CPU and memory of a worker without jobs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.context import BenchContext
from bench.process import family, processor_seconds, resident_mebibytes
from bench.workers import working

# Start-up is over and counted by then: PostgreSQL reports the transactions of a connection within ten seconds.
SECONDS_TO_SETTLE = 11
# More than twice the period of an idle worker's rarest query: it asks for maintenance duties once a minute.
SECONDS_MEASURED = 140


def run(context: BenchContext) -> None:
    """`idle_queries` per second, `idle_cpu` in per cent of a core, `idle_memory` of the process that runs handlers."""
    with (
        no_autovacuum(context.server.url),
        context.server.fresh("idle") as url,
        context.tally() as tally,
        working(url, tally) as workers,
    ):
        workers.wait_for(lambda: bool(tally.processes))
        time.sleep(SECONDS_TO_SETTLE)
        processes = [member for process in workers.pids for member in family(process)]
        # On a connection to another database, so that the benchmark's own queries are not counted.
        with psycopg.connect(context.server.url, autocommit=True) as connection:
            database = str(conninfo_to_dict(url)["dbname"])
            queries, spent = transactions(connection, database), sum(map(processor_seconds, processes))
            began = time.monotonic()
            time.sleep(context.size(SECONDS_MEASURED, 10))
            elapsed = time.monotonic() - began
            queries = transactions(connection, database) - queries
            spent = sum(map(processor_seconds, processes)) - spent
        memory = max(map(resident_mebibytes, tally.processes))
    context.report.figure("idle_queries", queries / elapsed, "/s")
    context.report.figure("idle_cpu", 100 * spent / elapsed, "%")
    context.report.figure("idle_memory", memory, "MiB")


@contextmanager
def no_autovacuum(url: str) -> Iterator[None]:
    """Turn autovacuum off: its transactions are in the same counter, and would be taken for the worker's."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("alter system set autovacuum = off")
        connection.execute("select pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("alter system reset autovacuum")
            connection.execute("select pg_reload_conf()")


def transactions(connection: psycopg.Connection, database: str) -> int:
    """Return the transactions of a database; every statement of an idle worker is a transaction of its own."""
    row = connection.execute(
        "select xact_commit + xact_rollback from pg_stat_database where datname = %s", [database]
    ).fetchone()
    return int(row[0]) if row else 0
