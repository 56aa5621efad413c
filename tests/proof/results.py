"""Recorded runs of the interleavings, the mutants, the storm and the soak."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("results.json")


class SearchedScenario(msgspec.Struct):
    """What was searched of one scenario."""

    schedules: int
    moves: int
    waits: int


class InterleavingsRun(msgspec.Struct):
    """A search of all scenarios. `scenarios`: all schedules up to the bound; `random`: further ones at random."""

    date: str
    commit: str
    preemptions: int
    faults: int
    scenarios: dict[str, SearchedScenario]
    random: dict[str, SearchedScenario] = {}


class MutantsRun(msgspec.Struct):
    """A run of all mutants, by capability. `slowest`: seconds."""

    date: str
    commit: str
    killed: dict[str, int]
    equivalent: dict[str, int]
    slowest: float


class SoakRun(msgspec.Struct):
    """Simulated days in which nothing grew.

    `relations`, `plans`: how many were compared. `memory`: MiB by service. `speed`: of the last drains, as a share of
    the first ones; `processor`: the same by processor time.
    """

    date: str
    commit: str
    days: int
    minutes: float
    jobs: int
    relations: int
    plans: int
    memory: dict[str, float]
    speed: float
    processor: float


class StormRun(msgspec.Struct):
    """A run of `tests.storm`, or of the storm over a carried queue, that found nothing. `figures`: what was counted."""

    date: str
    commit: str
    command: str
    seed: int
    seconds: int
    figures: dict[str, int]


class Results(msgspec.Struct, omit_defaults=True):
    interleavings: InterleavingsRun | None = None
    mutants: MutantsRun | None = None
    soak: SoakRun | None = None
    storm: StormRun | None = None
    carrier_storm: StormRun | None = None


def load() -> Results:
    return msgspec.json.decode(FILE.read_bytes(), type=Results) if FILE.exists() else Results()


def save(results: Results) -> None:
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def today() -> str:
    return datetime.now(UTC).date().isoformat()
