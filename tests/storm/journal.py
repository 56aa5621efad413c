"""Journals: files of lines that are on disk before their writer continues. Each process writes a file of its own."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

# Environment variables of the processes of a storm: the directory of the journals, and the name of the worker.
DIRECTORY, WORKER = "STORM_JOURNALS", "STORM_WORKER"


class Line(msgspec.Struct, array_like=True, tag=True, gc=False):
    """A line of a journal. `at`: nanoseconds of the monotonic clock, which all processes of a machine share.

    `wall`: seconds since 1970 by the clock that the database server reads too.
    """


class ProcessStarted(Line):
    """The first line of each file."""

    pid: int
    worker: str
    at: int


class RunBegan(Line):
    """A handler was called. `claimed`: by the clock of the database. `fire`: schedule and planned instant."""

    job: int
    attempt: int
    task: str
    key: str
    claimed: float
    at: int
    fire: tuple[int, str] | None = None


class RunEnded(Line):
    """A handler is about to return: ok, retry, cancelled or lost. `delay`: seconds until the next attempt."""

    job: int
    attempt: int
    outcome: str
    delay: float
    at: int
    wall: float


class StepRan(Line):
    """The function of a step was called."""

    job: int
    attempt: int
    number: int


class ResultsSeen(Line):
    """A handler read the results of the jobs that it waited for."""

    job: int
    attempt: int
    results: list[int | None]
    wall: float


class SignalReceived(Line):
    """A handler got the value of the signal that it waits for."""

    job: int
    attempt: int
    name: str
    value: int


class GroupAccepted(Line):
    """The reply to a group arrived. `key`: of its jobs. `then`: the job that follows them."""

    then: int
    key: str
    size: int


class JobAccepted(Line):
    """The reply to an enqueue arrived."""

    job: int
    task: str
    tenant: str | None = None


class EventAccepted(Line):
    """The reply to a notify arrived."""

    event: int


class CancelAccepted(Line):
    """The reply to a bulk cancel arrived; it cancels all jobs of a tenant."""

    operation: int
    tenant: str


class ProcessesKilled(Line):
    """`at`: before the signal was sent."""

    pids: list[int]
    what: str
    at: int


class ProcessesFrozen(Line):
    """SIGSTOP was about to be sent to these processes."""

    pids: list[int]
    at: int


class ProcessesResumed(Line):
    """SIGCONT was sent to these processes."""

    pids: list[int]
    at: int


class NetworkCut(Line):
    """The connections of a worker were about to be reset, or their traffic to be dropped."""

    worker: str
    what: str
    at: int


class ServerFault(Line):
    """A fault of the database server. `until`: when it was over."""

    what: str
    at: int
    until: int


class ClockJumped(Line):
    """The clock of the database was advanced at some time from `before` to `after` (wall)."""

    seconds: float
    before: float
    after: float


AnyLine = (
    ProcessStarted
    | RunBegan
    | RunEnded
    | StepRan
    | ResultsSeen
    | SignalReceived
    | GroupAccepted
    | JobAccepted
    | EventAccepted
    | CancelAccepted
    | ProcessesKilled
    | ProcessesFrozen
    | ProcessesResumed
    | NetworkCut
    | ServerFault
    | ClockJumped
)
_decoder = msgspec.json.Decoder(AnyLine)


def now() -> int:
    return time.monotonic_ns()


class Journal:
    """The journal of this process. A forked process opens a new file: process ids are used again."""

    def __init__(self, directory: Path, worker: str = "") -> None:
        self._directory = directory
        self._worker = worker
        self._pid = 0
        self._file = -1

    def write(self, *lines: AnyLine) -> None:
        """Append the lines and sync them to disk."""
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        os.write(self._descriptor(), data)
        os.fsync(self._file)

    def _descriptor(self) -> int:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            path = self._directory / f"{self._pid}.{now()}.journal"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            os.write(self._file, msgspec.json.encode(ProcessStarted(self._pid, self._worker, now())) + b"\n")
        return self._file


def lines_of(path: Path) -> Iterator[AnyLine]:
    """Yield the lines of a file. A last line without its end was never acknowledged."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _decoder.decode(line)
