"""What the judge knows: the journals, the log of the provider, and the database after the storm."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import cast

from tests.faults.provider_log import ProviderLog
from tests.storm.journal import (
    CancelAccepted,
    ClockJumped,
    EventAccepted,
    GroupAccepted,
    JobAccepted,
    Line,
    NetworkCut,
    ProcessesFrozen,
    ProcessesKilled,
    ProcessStarted,
    ResultsSeen,
    RunBegan,
    RunEnded,
    ServerFault,
    SignalReceived,
    StepRan,
    lines_of,
)


@dataclass(slots=True)
class Run:
    """One call of a handler. `end`: when its process certainly still ran it, if it never wrote its end.

    `outcome`: None if it never wrote its end. `began`, `end`: nanoseconds of the monotonic clock.
    """

    job: int
    attempt: int
    task: str
    key: str
    worker: str
    pid: int
    claimed: float
    begin: int
    end: int
    fire: tuple[int, str] | None = None
    outcome: str | None = None
    delay: float = 0.0
    ended_wall: float = 0.0
    was_killed: bool = False


@dataclass(slots=True, frozen=True)
class EndedJob:
    """A finished job in the database."""

    id: int
    task: str
    state: str
    attempt: int


@dataclass(slots=True, frozen=True)
class Fire:
    """An instant of a schedule in the database. `job`: None if it was skipped."""

    schedule: int
    at: datetime
    stands_for: int
    job: int | None


@dataclass(slots=True, frozen=True)
class PlannedInstants:
    """The instants that a schedule must have: from the first one, `step` seconds apart, to the last one."""

    key: str
    first: datetime
    step: float
    last: datetime | None


@dataclass(slots=True, frozen=True)
class Delivery:
    id: int
    event: int
    state: str
    unknowns: int


@dataclass
class FinalState:
    """The database at the end, with the rows that are in the archive. `attempts`: outcomes of all but the last ones."""

    live: int = 0
    ended: Sequence[EndedJob] = ()
    attempts: Sequence[tuple[int, int, str]] = ()
    effects: Sequence[int] = ()
    # Job and item of each committed item of an iteration.
    items: Sequence[tuple[int, int]] = ()
    fires: Sequence[Fire] = ()
    schedules: Mapping[int, PlannedInstants] = field(default_factory=dict)
    deliveries: Sequence[Delivery] = ()
    # Recipients of each event.
    recipients: int = 0
    violations: Sequence[str] = ()
    archived: int = 0


@dataclass
class Evidence:
    """Everything that the judge reads."""

    state: FinalState = field(default_factory=FinalState)
    provider: ProviderLog = field(default_factory=lambda: ProviderLog({}, {}))
    accepted: list[JobAccepted] = field(default_factory=list)
    events: list[EventAccepted] = field(default_factory=list)
    cancels: list[CancelAccepted] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    steps: list[StepRan] = field(default_factory=list)
    groups: list[GroupAccepted] = field(default_factory=list)
    results: list[ResultsSeen] = field(default_factory=list)
    signals: list[SignalReceived] = field(default_factory=list)
    kills: list[ProcessesKilled] = field(default_factory=list)
    freezes: list[ProcessesFrozen] = field(default_factory=list)
    cuts: list[NetworkCut] = field(default_factory=list)
    server_faults: list[ServerFault] = field(default_factory=list)
    jumps: list[ClockJumped] = field(default_factory=list)
    # Kills that ended a run.
    hits: int = 0

    def add(self, line: Line) -> None:
        """Add a line that belongs to no run."""
        for collection, kind in (
            (self.accepted, JobAccepted),
            (self.events, EventAccepted),
            (self.cancels, CancelAccepted),
            (self.steps, StepRan),
            (self.groups, GroupAccepted),
            (self.results, ResultsSeen),
            (self.signals, SignalReceived),
            (self.kills, ProcessesKilled),
            (self.freezes, ProcessesFrozen),
            (self.cuts, NetworkCut),
            (self.server_faults, ServerFault),
            (self.jumps, ClockJumped),
        ):
            if isinstance(line, kind):
                cast(list[Line], collection).append(line)
                return


def read(journals: Path, provider: ProviderLog, state: FinalState) -> Evidence:
    """Read all journals. A run without an end lasted until its process was killed, or wrote its last line."""
    found = Evidence(state, provider)
    processes: dict[int, list[tuple[int, list[Run]]]] = {}
    for path in sorted(journals.rglob("*.journal")):
        started, unfinished = _read_file(path, found)
        processes.setdefault(started.pid, []).append((started.at, unfinished))
    for kill in found.kills:
        found.hits += sum(_close(processes.get(pid, ()), kill.at) for pid in kill.pids) > 0
    found.runs.sort(key=lambda run: run.begin)
    return found


def _close(of_pid: Iterable[tuple[int, list[Run]]], killed_at: int) -> bool:
    """End the runs of a killed process: of all that had this id, the one that was started last before the kill."""
    before = [process for process in of_pid if process[0] <= killed_at]
    runs = max(before, key=lambda process: process[0])[1] if before else []
    hit = [run for run in runs if run.begin <= killed_at and not run.was_killed]
    for run in hit:
        run.end, run.was_killed = killed_at, True
    return bool(hit)


def _read_file(path: Path, found: Evidence) -> tuple[ProcessStarted, list[Run]]:
    """Read one journal; return its first line, and the runs that have no end."""
    started = ProcessStarted(0, "", 0)
    runs: dict[tuple[int, int], Run] = {}
    last = 0
    for line in lines_of(path):
        match line:
            case ProcessStarted():
                started = line
            case RunBegan():
                last = line.at
                run = Run(
                    line.job, line.attempt, line.task, line.key, started.worker, started.pid, line.claimed,
                    line.at, line.at, line.fire,
                )  # fmt: skip
                runs[line.job, line.attempt] = run
                found.runs.append(run)
            case RunEnded():
                last = line.at
                run = runs.pop((line.job, line.attempt))
                run.end, run.outcome, run.delay, run.ended_wall = line.at, line.outcome, line.delay, line.wall
            case _:
                found.add(line)
    for run in runs.values():
        run.end = max(run.begin, last)
    return started, list(runs.values())
