"""Archiving of history to verified files: rows per second, size of the files, and memory.

Days of finished jobs, in the order of time, are moved out of the history and written to Parquet files on disk. Each
file is read back: checksum, rows, keys and all columns. The time runs from the first batch that is read to the last
one that is verified, in a process that does nothing else; it includes PostgreSQL's own work.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg

from bench.context import BenchContext
from bench.dashboard_data import FINISHED, PARTITIONS
from bench.workers import BenchmarkFailed

ROWS, ROWS_QUICK = 5_000_000, 500_000
DAYS = 5
KEEP_DAYS = 30
# Divisor of the smaller run, which shows whether memory depends on the number of rows.
SMALL = 10
# Required rows per second.
BAR = 250_000


def run(context: BenchContext) -> None:
    """`rows` per second to verified files, `size` of a million rows, peak `memory` of all rows and of a tenth."""
    rows = context.size(ROWS, ROWS_QUICK)
    small = _archive(context, rows // SMALL)
    large = _archive(context, rows)
    context.report.figure("rows", large["rows"] / large["seconds"], "/s")
    context.report.figure("size", large["bytes"] / large["rows"], "MB per million rows")
    context.report.figure("moved", large["moved_seconds"], "s")
    context.report.figure("memory", large["memory"], "MiB")
    context.report.figure("memory_of_a_tenth", small["memory"], "MiB")
    if large["rows"] / large["seconds"] < BAR:
        context.report.note(f"below the bar of {BAR:,} rows/s")


def _archive(context: BenchContext, rows: int) -> dict[str, float]:
    directory = Path(tempfile.mkdtemp(prefix="sereno-bench-archive-"))
    try:
        with context.server.fresh("archive") as url:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(PARTITIONS, {"days": DAYS})
                sizes = {"rows": rows, "days": DAYS, "dead": rows + 1, "groups": 1, "schedules": 1000}
                connection.execute(FINISHED, sizes | {"tasks": 20, "tenants": 1000})
                # Moves the clock past the retention of every day, instead of waiting for it.
                connection.execute("insert into sereno.clock (ahead) values (interval '40 days')")
                connection.execute("checkpoint")
            command = [sys.executable, "-m", "bench.archive_process", url, str(directory)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=1800).stdout
        figures = json.loads(output)
        if figures["rows"] != rows or figures["problems"]:
            raise BenchmarkFailed(f"{figures['rows']:,} of {rows:,} rows were archived: {figures['problems']}")
        return dict(figures)
    finally:
        shutil.rmtree(directory)
