"""Which faults happen when: a list that follows from the size of the storm and its seed."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class FaultKind(StrEnum):
    """A kind of fault. A worker is a supervisor with its child processes."""

    KILL_CHILD = "kill a worker process"
    KILL_SUPERVISOR = "kill a supervisor"
    KILL_WORKER = "kill a supervisor and all its processes"
    RESTART = "restart PostgreSQL without a checkpoint"
    CUT = "reset connections"
    SILENCE = "drop traffic silently"
    FREEZE_CHILD = "freeze a worker process"
    FREEZE_WORKER = "freeze a supervisor and all its processes"
    JUMP_SECONDS = "advance the clock by seconds"
    JUMP_DAYS = "advance the clock by days"
    FULL_DISK = "fill the disk"
    NO_CONNECTIONS = "use up the connection limit"
    SLOW_DISK = "delay commits"


KILLS = (FaultKind.KILL_CHILD, FaultKind.KILL_SUPERVISOR, FaultKind.KILL_WORKER)

# Seconds of a storm for each fault of a kind, so that faults overlap with work; and jobs a second.
SECONDS_PER_KILL, SECONDS_PER_RESTART, SECONDS_PER_CUT, SECONDS_PER_FREEZE = 0.9, 8.0, 6.0, 8.0
JOBS_PER_SECOND = 700
SHORTEST = 10.0


@dataclass(frozen=True)
class StormSize:
    """The number of jobs and of faults. The kinds that have no number of their own follow the number of cuts."""

    jobs: int
    kills: int
    restarts: int
    cuts: int
    freezes: int

    @property
    def seconds(self) -> float:
        """The time over which the faults are spread."""
        return max(
            SHORTEST,
            self.jobs / JOBS_PER_SECOND,
            self.kills * SECONDS_PER_KILL,
            self.restarts * SECONDS_PER_RESTART,
            self.cuts * SECONDS_PER_CUT,
            self.freezes * SECONDS_PER_FREEZE,
        )

    def counts(self) -> dict[FaultKind, int]:
        """Return the number of faults of each kind."""
        supervisors, workers = self.kills // 12, self.kills // 8
        silences, whole = self.cuts // 4, self.freezes // 2
        return {
            FaultKind.KILL_CHILD: self.kills - supervisors - workers,
            FaultKind.KILL_SUPERVISOR: supervisors,
            FaultKind.KILL_WORKER: workers,
            FaultKind.RESTART: self.restarts,
            FaultKind.CUT: self.cuts - silences,
            FaultKind.SILENCE: silences,
            FaultKind.FREEZE_CHILD: self.freezes - whole,
            FaultKind.FREEZE_WORKER: whole,
            FaultKind.JUMP_SECONDS: self.cuts // 2,
            FaultKind.JUMP_DAYS: 1 + self.cuts // 15,
            FaultKind.FULL_DISK: 1 + self.cuts // 15,
            FaultKind.NO_CONNECTIONS: 1 + self.cuts // 15,
            FaultKind.SLOW_DISK: 1 + self.cuts // 15,
        }


@dataclass(frozen=True, order=True)
class PlannedFault:
    """`after`: seconds since the begin. `chance`: from 0 to 1, chooses among what can be hit then."""

    after: float
    kind: FaultKind
    chance: float

    @classmethod
    def at_random(cls, kind: FaultKind, slot: float, length: float, rng: random.Random) -> Self:
        return cls(slot + rng.random() * length, kind, rng.random())


def planned(size: StormSize, seed: int) -> list[PlannedFault]:
    """Return all faults in order. Those of one kind are spread evenly, each at a random time of its share."""
    rng = random.Random(seed)
    return sorted(
        PlannedFault.at_random(kind, number * size.seconds / count, size.seconds / count, rng)
        for kind, count in size.counts().items()
        for number in range(count)
    )
