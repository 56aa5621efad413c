"""Recorded runs of the interleavings, the mutants, the storm and the soak."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("results.json")
SOURCE = ROOT / "src" / "sereno"
# Packages that no scenario uses, and none of its modules imports.
ABOVE = frozenset({"cli", "contrib", "mcp", "server", "testing"})


class SearchedScenario(msgspec.Struct):
    """What was searched of one scenario. `ran`: of random schedules, those that were no repetition of another."""

    schedules: int
    moves: int
    waits: int
    ran: int = 0


class InterleavingsRun(msgspec.Struct):
    """A search of all scenarios: all schedules up to the bound."""

    date: str
    commit: str
    preemptions: int
    faults: int
    scenarios: dict[str, SearchedScenario]


class RandomRuns(msgspec.Struct):
    """Random schedules of one version of the engine, of several runs. `engine`: see `engine_digest`; `date`: the last.

    A schedule is a function of its seed and its number, so each seed is run once.
    """

    engine: str
    date: str
    commits: list[str]
    seeds: list[int]
    scenarios: dict[str, SearchedScenario]


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
    random: list[RandomRuns] = []
    mutants: MutantsRun | None = None
    soak: SoakRun | None = None
    storm: StormRun | None = None
    carrier_storm: StormRun | None = None


def load() -> Results:
    return msgspec.json.decode(FILE.read_bytes(), type=Results) if FILE.exists() else Results()


def save(results: Results) -> None:
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def random_runs(results: Results, engine: str) -> RandomRuns:
    """Return the random schedules of this version of the engine; an empty record, not yet stored, if it has none."""
    fresh = RandomRuns(engine, today(), [], [], {})
    return next((each for each in results.random if each.engine == engine), fresh)


def add_random(results: Results, engine: str, commit: str, seed: int, searched: Mapping[str, SearchedScenario]) -> None:
    """Add the random schedules of one run to those of the same version of the engine."""
    runs = random_runs(results, engine)
    if runs not in results.random:
        results.random.append(runs)
    runs.date = today()
    runs.seeds = sorted({*runs.seeds, seed})
    if commit not in runs.commits:
        runs.commits.append(commit)
    for name, new in searched.items():
        old = runs.scenarios.get(name, SearchedScenario(0, 0, 0))
        runs.scenarios[name] = SearchedScenario(
            old.schedules + new.schedules, old.moves + new.moves, old.waits + new.waits, old.ran + new.ran
        )


def engine_digest(source: Path = SOURCE) -> str:
    """Return a digest of the code that schedules run: all modules and SQL files, but for packages above `app`."""
    found = hashlib.sha256()
    for file in sorted(source.rglob("*")):
        name = file.relative_to(source)
        if file.suffix in (".py", ".sql") and name.parts[0] not in ABOVE:
            found.update(f"{name.as_posix()}\n".encode() + file.read_bytes())
    return found.hexdigest()[:12]


def today() -> str:
    return datetime.now(UTC).date().isoformat()
