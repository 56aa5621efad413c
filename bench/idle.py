"""What a worker costs that has nothing to do."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.process import family, processor_seconds, resident_mebibytes
from bench.site import Site
from bench.workers import working

# Start-up is over, and the server has counted it: a connection reports its transactions within ten seconds.
SECONDS_TO_SETTLE = 11
# Twice as long as the rarest thing that an idle worker does: it asks for duties once a minute.
SECONDS_MEASURED = 140


def run(site: Site) -> None:
    """`idle_queries` a second, `idle_cpu` in per cent of a core, `idle_memory` of the process that runs handlers."""
    with (
        _no_autovacuum(site.server.url),
        site.server.fresh("idle") as url,
        site.tally() as tally,
        working(url, tally) as workers,
    ):
        workers.wait_for(lambda: bool(tally.processes))
        time.sleep(SECONDS_TO_SETTLE)
        processes = [member for process in workers.pids for member in family(process)]
        # Asked from another database, so that asking does not count.
        with psycopg.connect(site.server.url, autocommit=True) as connection:
            database = str(conninfo_to_dict(url)["dbname"])
            queries, spent = _transactions(connection, database), sum(map(processor_seconds, processes))
            began = time.monotonic()
            time.sleep(site.size(SECONDS_MEASURED, 10))
            elapsed = time.monotonic() - began
            queries = _transactions(connection, database) - queries
            spent = sum(map(processor_seconds, processes)) - spent
        memory = max(map(resident_mebibytes, tally.processes))
    site.report.figure("idle_queries", queries / elapsed, "/s")
    site.report.figure("idle_cpu", 100 * spent / elapsed, "%")
    site.report.figure("idle_memory", memory, "MiB")


@contextmanager
def _no_autovacuum(url: str) -> Iterator[None]:
    """Its transactions are counted with everybody's, and would pass for the worker's."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("alter system set autovacuum = off")
        connection.execute("select pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("alter system reset autovacuum")
            connection.execute("select pg_reload_conf()")


def _transactions(connection: psycopg.Connection, database: str) -> int:
    """Every statement of an idle worker is a transaction of its own."""
    row = connection.execute(
        "select xact_commit + xact_rollback from pg_stat_database where datname = %s", [database]
    ).fetchone()
    return int(row[0]) if row else 0
