"""The command line: `python -m bench NAME [--quick] [--json] [--database-url URL]`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bench import (
    archive,
    burden,
    ceiling,
    dashboard,
    drain,
    enqueue,
    idle,
    latency,
    limits,
    memory,
    notify,
    peers,
    schedules,
    table,
)
from bench.peers import schedules as peers_schedules
from bench.report import Report
from bench.server import server
from bench.site import Site
from bench.workers import BenchmarkFailed

# In the order in which `all` runs them.
BENCHMARKS: dict[str, Callable[[Site], None]] = {
    "ceiling": ceiling.run,
    "drain": drain.run,
    "enqueue": enqueue.run,
    "latency": latency.run,
    "idle": idle.run,
    "pinned": burden.run_pinned,
    "backlog": burden.run_backlog,
    "history": burden.run_history,
    "memory": memory.run,
    "schedules": schedules.run,
    "limits": limits.run,
    "notify": notify.run,
    "dashboard": dashboard.run,
    "archive": archive.run,
}
# The same on others.
PEERS = {"peers": peers.run, "schedule_peers": peers_schedules.run}
# The drain measures it anyway.
NOT_IN_ALL = {"ceiling"}


def main() -> int:
    options = _options()
    if options.name == "table":
        print(table.table(options.file))
        return 0
    report = Report(options.json)
    with server(options.database_url) as running:
        report.note(running.description())
        site = Site(running, report, options.quick, options.clients)
        try:
            if measure := PEERS.get(options.name):
                measure(running.url, quick=options.quick, only=options.only, report=report.figure, note=report.note)
            for name in _chosen(options.name):
                BENCHMARKS[name](site)
        except BenchmarkFailed as failure:
            report.note(f"failed: {failure}")
            return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure sereno, and others beside it.")
    parser.add_argument("name", choices=[*BENCHMARKS, *PEERS, "all", "table"], help="all: everything but peers")
    parser.add_argument("file", nargs="?", type=Path, help="for table: figures that were saved with --json")
    parser.add_argument("--quick", action="store_true", help="fewer jobs, one round: under 40 s, and less exact")
    parser.add_argument("--json", action="store_true", help="one JSON object per figure")
    parser.add_argument("--database-url", help="a server of your own, where databases bench_… may be made and dropped")
    parser.add_argument("--clients", type=int, default=0, help="for enqueue: number of client processes")
    parser.add_argument("--only", nargs="+", metavar="PEER", help="for peers and schedule_peers: these, not all")
    options = parser.parse_args()
    if (options.name == "table") != (options.file is not None):
        parser.error("table takes one file, the others take none")
    return options


def _chosen(name: str) -> list[str]:
    if name == "all":
        return [known for known in BENCHMARKS if known not in NOT_IN_ALL]
    return [name] if name in BENCHMARKS else []


if __name__ == "__main__":
    sys.exit(main())
