"""From one process to an API and a worker, phase by phase: a command, then a check, then the next phase. And back.

python -m separate_worker.rollout             # runs the phases; safe to repeat from any of them
python -m separate_worker.rollout --print     # prints the commands and checks, and runs nothing
python -m separate_worker.rollout --back      # from any phase to one process

It needs nothing but Python: `python3 rollout.py` does the same where nothing is installed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# Variables with the commands, and what they are with the compose file of this example.
COMMANDS = {
    "ROLLOUT_START_WORKER": "docker compose up -d worker",
    "ROLLOUT_STOP_WORKER": "docker compose stop worker",
    "ROLLOUT_API_WITHOUT_RUNNER": "docker compose up -d api",
    "ROLLOUT_API_WITH_RUNNER": "docker compose -f compose.yaml -f compose.monolith.yaml up -d api",
}
# Seconds between two checks, and that one request may take.
PAUSE, REQUEST_TIMEOUT = 0.5, 10.0


class CheckError(Exception):
    """The phase is not complete; the text says what is missing."""


@dataclass(frozen=True)
class Snapshot:
    """The metrics of all API processes at one time. What they read from the database is in each of them."""

    apis: Sequence[dict[str, Any]]

    @property
    def workers(self) -> set[str]:
        """The processes that run jobs."""
        return {worker["process"] for worker in self.apis[0]["workers"]}

    @property
    def separate_workers(self) -> set[str]:
        return self.workers - {api["process"] for api in self.apis}

    @property
    def last_run_at(self) -> datetime | None:
        at = self.apis[0]["lastRunAt"]
        return datetime.fromisoformat(at) if at else None

    @property
    def lock_is_held_by_an_api(self) -> bool:
        held_by = (self.apis[0]["lockedBy"] or "").replace(":", "-")
        return any(held_by.startswith(f"{api['process']}-") for api in self.apis)


# Gets the current metrics and those before the phase; returns what it found, or raises CheckError.
Check = Callable[[Snapshot, Snapshot], str]


@dataclass(frozen=True)
class Phase:
    """`command`: the name of its variable, or None for a phase that only checks."""

    name: str
    command: str | None
    checks: str
    check: Check


def worker_is_there(now: Snapshot, _: Snapshot) -> str:
    if not now.separate_workers:
        raise CheckError("no separate worker is alive")
    return f"alive: {', '.join(sorted(now.separate_workers))}"


def apis_run_no_jobs(now: Snapshot, before: Snapshot) -> str:
    if busy := [api["process"] for api in now.apis if api["jobRunnerEnabled"]]:
        raise CheckError(f"JOB_RUNNER_ENABLED is still true in {', '.join(busy)}")
    # An API process that was replaced may still be finishing its jobs.
    if left := now.workers & {api["process"] for api in before.apis}:
        raise CheckError(f"still running jobs: {', '.join(sorted(left))}")
    return worker_is_there(now, before)


def worker_runs_cycles(now: Snapshot, before: Snapshot) -> str:
    if now.apis[0]["lockedBy"] is None or now.lock_is_held_by_an_api:
        raise CheckError("no separate worker leads yet")
    return cycle_has_run(now, before)


def cycle_has_run(now: Snapshot, before: Snapshot) -> str:
    last, at, earlier = now.apis[0], now.last_run_at, before.last_run_at
    if at is None or (earlier is not None and at <= earlier):
        raise CheckError("no cycle has run in this phase yet")
    if last["lastRunError"] is not None:
        raise CheckError(f"the last cycle failed: {last['lastRunError']}")
    return (
        f"a cycle ran at {at:%H:%M:%S}: {last['lastRunJobCount']} jobs, {last['waiting']} waiting, {last['dead']} dead"
    )


def apis_run_jobs(now: Snapshot, _: Snapshot) -> str:
    if idle := [api["process"] for api in now.apis if api["process"] not in now.workers]:
        raise CheckError(f"not running jobs: {', '.join(idle)}")
    return f"running jobs: {', '.join(sorted(now.workers))}"


def only_apis_run_jobs(now: Snapshot, before: Snapshot) -> str:
    if now.separate_workers:
        raise CheckError(f"still running jobs: {', '.join(sorted(now.separate_workers))}")
    return apis_run_jobs(now, before)


FORWARD = (
    Phase("1: a worker beside the API", "ROLLOUT_START_WORKER", "a separate worker is alive", worker_is_there),
    Phase("2: the API runs no jobs", "ROLLOUT_API_WITHOUT_RUNNER", "only separate workers are left", apis_run_no_jobs),
    Phase("3: jobs are processed", None, "a separate worker leads, and a cycle ran without error", worker_runs_cycles),
)
BACK = (
    Phase("1: the API runs jobs", "ROLLOUT_API_WITH_RUNNER", "every API process is among the workers", apis_run_jobs),
    Phase("2: no separate worker", "ROLLOUT_STOP_WORKER", "only API processes are left", only_apis_run_jobs),
    Phase("3: jobs are processed", None, "a cycle ran without error", cycle_has_run),
)


class Rollout:
    """Runs phases one after the other. A phase whose check holds already needs no command."""

    def __init__(self, apis: Sequence[str], timeout: float, token: str | None) -> None:
        self._apis = apis
        self._timeout = timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def run(self, phases: Sequence[Phase]) -> None:
        for phase in phases:
            print(f"phase {phase.name}", flush=True)
            before = self._until(lambda now, _: now)
            try:
                found = phase.check(before, before)
            except CheckError:
                if phase.command is not None:
                    run_command(phase.command)
                found = self._until(phase.check, before)
            print(f"  holds    {found}", flush=True)

    def _until(self, check: Callable[[Snapshot, Any], Any], before: Snapshot | None = None) -> Any:
        """Repeat the check until it holds. An API that is being replaced may not answer for a while."""
        end = time.monotonic() + self._timeout
        while True:
            try:
                return check(self._read(), before)
            except (CheckError, OSError, ValueError) as error:
                if time.monotonic() > end:
                    raise CheckError(f"{error} (after {self._timeout:g} s)") from None
            time.sleep(PAUSE)

    def _read(self) -> Snapshot:
        return Snapshot([self._metrics(api) for api in self._apis])

    def _metrics(self, api: str) -> dict[str, Any]:
        url = f"{api.rstrip('/')}/api/integrations/jobs/metrics"
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310 - the operator's own
        with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT) as response:  # noqa: S310 - see above
            found: dict[str, Any] = json.load(response)
        return found


def command_of(variable: str) -> str:
    return os.environ.get(variable) or COMMANDS[variable]


def run_command(variable: str) -> None:
    command = command_of(variable)
    print(f"  run      {command}", flush=True)
    # Commands come from the operator, who may use what a shell offers.
    ended = subprocess.run(["sh", "-c", command], check=False)
    if ended.returncode:
        raise CheckError(f"the command ended with exit code {ended.returncode}")


def print_phases(phases: Sequence[Phase]) -> None:
    for phase in phases:
        print(f"phase {phase.name}")
        if phase.command is not None:
            print(f"  run      {command_of(phase.command)}")
        print(f"  check    {phase.checks}")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m separate_worker.rollout",
        description="From one process to an API and a worker, phase by phase.",
        epilog=f"Variables with other commands than those of docker compose: {', '.join(COMMANDS)}.",
    )
    parser.add_argument("--back", action="store_true", help="back to one process, from any phase")
    parser.add_argument("--print", action="store_true", dest="only_print", help="print the phases, and run nothing")
    parser.add_argument("--api", action="append", help="URL of an API process; repeat it for each replica")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds until a check fails (default: 120)")
    return parser


def main() -> None:
    given = arguments().parse_args()
    phases = BACK if given.back else FORWARD
    if given.only_print:
        print_phases(phases)
        return
    token = os.environ.get("SEPARATE_WORKER_METRICS_TOKEN")
    try:
        Rollout(given.api or ["http://127.0.0.1:8000"], given.timeout, token).run(phases)
    except CheckError as error:
        way_back = "" if given.back else ", or go back with --back"
        sys.exit(f"  fails    {error}\nNo job is lost. Run it again when this is resolved{way_back}.")
    print("done")


if __name__ == "__main__":
    main()
