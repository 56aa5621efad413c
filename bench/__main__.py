"""The command line: `python -m bench NAME [--quick] [--json] [--against COMMIT] [--database-url URL]`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bench import (
    against,
    archive,
    carrier,
    ceiling,
    dashboard,
    drain,
    drain_conditions,
    enqueue,
    features,
    handlers,
    idle,
    latency,
    limits,
    memory,
    notify,
    peers,
    ratchet,
    readme,
    recorded,
    scale,
    schedules,
    start,
    table,
    workflows,
)
from bench.context import BenchContext
from bench.peers import schedules as peers_schedules
from bench.report import Report
from bench.server import server
from bench.workers import BenchmarkFailed

# In the order in which `all` runs them.
BENCHMARKS: dict[str, Callable[[BenchContext], None]] = {
    "ceiling": ceiling.run,
    "drain": drain.run,
    "handlers": handlers.run,
    "features": features.run,
    "enqueue": enqueue.run,
    "latency": latency.run,
    "idle": idle.run,
    "start": start.run,
    "pinned": drain_conditions.run_pinned,
    "backlog": drain_conditions.run_backlog,
    "history": drain_conditions.run_history,
    "memory": memory.run,
    "schedules": schedules.run,
    "limits": limits.run,
    "notify": notify.run,
    "dashboard": dashboard.run,
    "archive": archive.run,
    "workflows": workflows.run,
    "scale": scale.run,
    "carrier": carrier.run,
    "ratchet": ratchet.run,
}
# The same work on other products.
PEERS = {"peers": peers.run, "schedule_peers": peers_schedules.run}
# `drain` measures it too.
NOT_IN_ALL = {"ceiling", "ratchet"}

BENCHMARK_HELP = """\
benchmarks:
  ceiling         claim and settle in bare SQL, without a worker; included in drain
  drain           a full queue emptied by one and by two worker processes
  handlers        sync, isolated and batch handlers: jobs/s and CPU per job, compared with async ones
  features        what each feature costs a job beyond a plain one: CPU of worker, PostgreSQL, enqueue
  enqueue         enqueue one job at a time and in bulk, compared with INSERT and COPY
  latency         from enqueue to the start of the handler, p50 and p99: idle, and at 5,000 jobs/s
  idle            queries, CPU and memory of a worker without jobs
  start           time of `sereno --help`, of `import sereno` and of a worker's start; a worker's memory
  pinned          drain while another session holds a snapshot open
  backlog         drain behind a million future jobs
  history         drain beside a million finished jobs
  memory          growth of a worker's memory over a million jobs
  schedules       a million schedules: registration, lateness, fires per second, CPU;
                  growth of a tick from 10,000 rows to a million and to ten million
  limits          drains under concurrency limits; waiting time of a small tenant
  notify          one event to a million recipients: fan-out, sending, receipts
  dashboard       server time of each page over a large data set; load of 50 viewers
  archive         history to verified Parquet files: rows per second, size, memory
  workflows       a group, a chain of dependent jobs, a million waiting jobs, ten thousand waiters
  scale           CPU, WAL and disk of a job; a simulation of 1, 10 and 100 shards and of a million
                  jobs/s with failures; two real shards compared with its prediction
  carrier         a queue carried by three NATS servers, compared with the same queue in PostgreSQL

  peers           drain, enqueue and latency, idle and loaded, of other job queues
  schedule_peers  schedules of other products
  all             every benchmark except ceiling, ratchet, peers and schedule_peers
  ratchet         a short run of drain and enqueue, compared with the recorded one
  readme          write the recorded figures into README.md
  table           print a Markdown table of the figures in FILE
"""


def main() -> int:
    options = _options()
    if options.name == "table":
        print(table.table(options.file))
        return 0
    if options.name == "readme":
        readme.write(recorded.load())
        return 0
    report = Report(options.json)
    with server(options.database_url) as running:
        report.note(running.description())
        context = BenchContext(running, report, options.quick, options.clients)
        try:
            commit = recorded.commit_to_record() if options.record else ""
            if options.against:
                against.run(context, options.name, options.against)
                return 0
            if measure := PEERS.get(options.name):
                measure(running.url, quick=options.quick, only=options.only, report=report.figure, note=report.note)
                _record(options.name, commit, running.description(), report)
            for name in _selected(options.name):
                BENCHMARKS[name](context)
                _record(name, commit, running.description(), report)
        except BenchmarkFailed as failure:
            report.note(f"failed: {failure}")
            return 1
    return 0


def _record(name: str, commit: str, environment: str, report: Report) -> None:
    """Store the figures of a benchmark under its name, if a commit is given."""
    if commit:
        recorded.save(name, commit, environment, list(report.figures))
    report.figures.clear()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure sereno and, for comparison, other job queues and schedulers on PostgreSQL.",
        epilog=BENCHMARK_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*BENCHMARKS, *PEERS, "all", "readme", "table"]
    parser.add_argument("name", choices=names, metavar="NAME", help="the benchmark to run, see below")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="for table: figures saved with --json")
    parser.add_argument("--quick", action="store_true", help="fewer jobs, one round: under 40 s, and less exact")
    parser.add_argument("--json", action="store_true", help="print one JSON object per figure")
    parser.add_argument(
        "--database-url",
        metavar="URL",
        help="use this server, which must allow creating and dropping databases bench_*; default: an embedded one",
    )
    parser.add_argument(
        "--clients", type=int, default=0, metavar="N", help="for enqueue: measure N client processes at once"
    )
    parser.add_argument(
        "--against", metavar="COMMIT", help="measure this version and a commit in turn, and compare their figures"
    )
    parser.add_argument("--record", action="store_true", help="store the figures in bench/figures.json")
    parser.add_argument("--only", nargs="+", metavar="PEER", help="for peers and schedule_peers: only these peers")
    options = parser.parse_args()
    if (options.name == "table") != (options.file is not None):
        parser.error("table needs one FILE; the other benchmarks take none")
    if options.against and options.name not in BENCHMARKS:
        parser.error("--against compares one of our own benchmarks")
    if options.record and (options.quick or options.against or options.only):
        parser.error("only whole, full runs are recorded: without --quick, --against and --only")
    return options


def _selected(name: str) -> list[str]:
    if name == "all":
        return [known for known in BENCHMARKS if known not in NOT_IN_ALL]
    return [name] if name in BENCHMARKS else []


if __name__ == "__main__":
    sys.exit(main())
