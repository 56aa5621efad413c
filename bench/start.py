"""Time from the start of a process to its use: the command line, the import, a worker; and the memory of a worker."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.context import BenchContext
from bench.feature_tasks import TALLY, first
from bench.process import family, proportional_mebibytes, resident_mebibytes
from bench.tally import Tally
from bench.tasks import QUEUE, account, microseconds
from bench.workers import SLOTS, BenchmarkFailed
from sereno import Sereno

ROUNDS, ROUNDS_QUICK = 15, 5
STARTS, STARTS_QUICK = 7, 3
SECONDS_BETWEEN_POLLS = 0.005
SECONDS_TO_WAIT = 30
# Until the services of a worker have opened their connections and run once.
SECONDS_TO_SETTLE = 2.0

# As users run it. Nothing can start faster than the interpreter itself.
PROGRAM = Path(sys.executable).with_name("sereno")
PYTHON = "start_python"
COMMANDS: Mapping[str, Sequence[str]] = {
    PYTHON: [sys.executable, "-c", "pass"],
    "start_help": [str(PROGRAM), "--help"],
    "start_import": [sys.executable, "-c", "import sereno"],
    "start_import_app": [sys.executable, "-c", "import sereno; sereno.Sereno"],
}


def run(context: BenchContext) -> None:
    """`start_python`, `start_help`, `start_import`, `start_import_app`; `start_worker` and the memory of a worker."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        environment = _with_bytecode(directory)
        _commands(context, environment)
        _workers(context, environment)


def _with_bytecode(directory: str) -> dict[str, str]:
    """Return the environment of the processes: compiled modules are kept, as on any machine that starts them twice."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": directory}


def _commands(context: BenchContext, environment: Mapping[str, str]) -> None:
    """Time whole processes, from their start to their end; of each also the processor time."""
    elapsed: dict[str, list[float]] = {name: [] for name in COMMANDS}
    spent: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(context.size(ROUNDS, ROUNDS_QUICK) + 1):
        for name, command in COMMANDS.items():
            seconds, processor = _time(command, environment)
            # The first round compiles the modules.
            if number:
                elapsed[name].append(seconds * 1000)
                spent[name].append(processor * 1000)
    for name, values in elapsed.items():
        if name == PYTHON:
            context.report.figure(name, median(values), "ms")
        else:
            context.report.rounds(name, values, "ms", PYTHON, elapsed[PYTHON])
        context.report.figure(f"{name}_cpu", median(spent[name]), "ms")


def _time(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds that the command takes, and its processor time."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds, after = time.perf_counter() - began, os.times()
    if done.returncode:
        raise BenchmarkFailed(f"{command} failed: {done.stderr.decode(errors='replace')[-300:]}")
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, processor


def _workers(context: BenchContext, environment: Mapping[str, str]) -> None:
    """`start_worker`: from the start of `sereno worker` to the handler of a waiting job. Then its memory."""
    ready, proportional, resident = [], [], []
    for _ in range(context.size(STARTS, STARTS_QUICK) + 1):
        with context.server.fresh("start") as url, context.tally(1) as tally:
            app = Sereno(url)
            app.enqueue_many([first.job(account(0))])
            app.close()
            began = microseconds()
            process = _start(url, tally, environment)
            try:
                _wait(process, tally)
                ready.append((tally.samples[0] - began) / 1000)
                time.sleep(SECONDS_TO_SETTLE)
                proportional.append(sum(map(proportional_mebibytes, family(process.pid))))
                resident.append(max(map(resident_mebibytes, tally.processes)))
            finally:
                process.terminate()
                process.wait(SECONDS_TO_WAIT)
    # The first start compiles the modules.
    context.report.figure("start_worker", median(ready[1:]), "ms")
    context.report.figure("start_worker_pss", median(proportional[1:]), "MiB")
    context.report.figure("start_worker_rss", median(resident[1:]), "MiB")


def _start(url: str, tally: Tally, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    command = [str(PROGRAM), "worker", "bench.feature_tasks:app", "--database-url", url, "--queue", f"{QUEUE}={SLOTS}"]
    log = tally.path.with_suffix(".log").open("wb")
    with log:
        return subprocess.Popen(command, stdout=log, stderr=log, env={**environment, TALLY: str(tally.path)})


def _wait(process: "subprocess.Popen[bytes]", tally: Tally) -> None:
    """Wait until the job has run."""
    deadline = time.monotonic() + SECONDS_TO_WAIT
    while not tally.executed:
        if process.poll() is not None or time.monotonic() > deadline:
            log = tally.path.with_suffix(".log").read_text(errors="replace")
            raise BenchmarkFailed(f"the worker did not run a job: {log[-300:]}")
        time.sleep(SECONDS_BETWEEN_POLLS)
