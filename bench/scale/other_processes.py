"""How much of the machine other processes use: absolute speeds and latencies mean something only while it is little."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.context import BenchContext
from bench.cpu_time import machine_seconds

# Cores that others may use while something absolute is measured.
MOST_OTHERS = 0.5
# Seconds to wait for such a moment, at most, and of one look.
LONGEST_WAIT, LONGEST_WAIT_QUICK, LOOK = 120.0, 10.0, 2.0


@dataclass
class OtherProcesses:
    """Counts from its creation on. `ours`: returns the processor seconds of the processes that are measured."""

    ours: Callable[[], float]
    _began: float = field(init=False)
    _before: float = field(init=False)

    def __post_init__(self) -> None:
        self._began, self._before = time.perf_counter(), machine_seconds() - self.ours()

    def cores(self) -> float:
        """Return how many cores others have used on average."""
        return max(0.0, (machine_seconds() - self.ours() - self._before) / (time.perf_counter() - self._began))


def wait_until_quiet(context: BenchContext) -> None:
    """Wait until others use little of the machine, but not forever."""
    until = time.monotonic() + context.size(int(LONGEST_WAIT), int(LONGEST_WAIT_QUICK))
    while time.monotonic() < until:
        others = OtherProcesses(time.process_time)
        time.sleep(LOOK)
        if others.cores() <= MOST_OTHERS:
            return


def is_quiet(context: BenchContext, others: OtherProcesses, what: str) -> bool:
    """Return whether others used little since `others` was created; say so if they did not."""
    used = others.cores()
    if used > MOST_OTHERS:
        context.report.note(f"{what}: not used, because other processes had {used:.1f} cores of this machine")
    return used <= MOST_OTHERS
