"""Old history to verified files: how fast, how small, and in how much memory.

Days of finished jobs, as they come, are moved out and become Parquet files on the disk, each of which is read back:
checksum, rows, keys and all columns. The clock runs from the first batch that is looked at to the last one that is
verified, in a process that does nothing else; PostgreSQL's own work is in it.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg

from bench.dashboard_house import FINISHED, PARTITIONS
from bench.site import Site
from bench.workers import BenchmarkFailed

ROWS, ROWS_QUICK = 5_000_000, 500_000
DAYS = 5
KEEP_DAYS = 30
# So much less, to see what memory hangs on.
SMALL = 10
# DESIGN, section 8.
BAR = 200_000


def run(site: Site) -> None:
    """`rows`: a second, to verified files. `size`: of a million rows. `memory`: at its most, and for a tenth of it."""
    rows = site.size(ROWS, ROWS_QUICK)
    small = _archived(site, rows // SMALL)
    large = _archived(site, rows)
    site.report.figure("rows", large["rows"] / large["seconds"], "/s")
    site.report.figure("size", large["bytes"] / large["rows"], "MB per million rows")
    site.report.figure("moved", large["moved_seconds"], "s")
    site.report.figure("memory", large["memory"], "MiB")
    site.report.figure("memory_of_a_tenth", small["memory"], "MiB")
    if large["rows"] / large["seconds"] < BAR:
        site.report.note(f"below the bar of {BAR:,} rows/s")


def _archived(site: Site, rows: int) -> dict[str, float]:
    directory = Path(tempfile.mkdtemp(prefix="sereno-bench-archive-"))
    try:
        with site.server.fresh("archive") as url:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(PARTITIONS, {"days": DAYS})
                connection.execute(
                    FINISHED, {"rows": rows, "days": DAYS, "dead": rows + 1, "tasks": 20, "tenants": 1000}
                )
                # Past the longest of their days, and without a wait.
                connection.execute("insert into sereno.clock (ahead) values (interval '40 days')")
                connection.execute("checkpoint")
            command = [sys.executable, "-m", "bench.archive_process", url, str(directory)]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=1800).stdout)
        if found["rows"] != rows or found["problems"]:
            raise BenchmarkFailed(f"{found['rows']:,} of {rows:,} rows were archived: {found['problems']}")
        return dict(found)
    finally:
        shutil.rmtree(directory)
