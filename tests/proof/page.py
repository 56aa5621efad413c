"""The page docs/why/proof.md, from the promises and the recorded runs."""

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from sereno.monitoring.invariants import INVARIANTS
from tests.interleavings.scenarios import SCENARIOS
from tests.mutants.catalogue import Mutant, catalogue
from tests.proof.results import ROOT, InterleavingsRun, Results, SoakRun

PAGE = ROOT / "docs" / "why" / "proof.md"
PROMISES = Path(__file__).with_name("promises.toml")

HEAD = """\
# Proof

Each promise below is checked in four ways, or its section says which of them does not apply:

- **Invariants.** `sereno verify` runs them on a live database; each must return no row. Every storm ends with them.
  Their SQL: [jobs, limits and schedules](../../src/sereno/monitoring/invariants.sql),
  [notifications](../../src/sereno/monitoring/invariants_notifications.sql),
  [archive](../../src/sereno/monitoring/invariants_archive.sql),
  [iterations](../../src/sereno/monitoring/invariants_iterations.sql).
- **Interleavings.** A model checker runs the real SQL on a real PostgreSQL. A scenario is two or three callers, each on
  its own connection. At each statement and each commit it is decided who is next; a caller may be killed, or lose the
  reply of a commit. All orders with a bounded number of preemptions are run, and random ones beyond, each different
  order once in a run. After each, the invariants and the model of the scenario are checked, and what is left is run to
  its end. A failing order is shortened and printed with the command that repeats it.
- **Mutants.** One line of our own SQL or Python is broken; a named test must fail. This shows that the tests can find
  what they are for.
- **Storms.** Workers and servers are killed while jobs run; handlers write to files of their own, which are compared
  with the database at the end. In [one of them](../../tests/storm/storm.py) everything works at once.

Repeat them from a checkout:

| what | command |
|---|---|
| invariants, on your database | `sereno verify` |
| interleavings, all or one scenario | `make interleavings`, `make interleavings ARGS=two_claims` |
| mutants, all or of one part | `make mutants`, `make mutants ARGS=jobs` |
| storms | `make storm` |
| everything at once, in full length | `make storm-nightly` |
| a carried queue, in full length | `python -m tests.faults.carrier_storm --jobs 200000 --kills 60` |
| a month of work | `make soak` |
"""

SOAK = """\
## Nothing grows in a month

`make soak` runs worker, scheduler and server on a real PostgreSQL and moves sereno's clock from hour to hour, for 30
days: plain, failing, limited, ordered, unique and delayed jobs, a thousand schedules, notifications over HTTP, bulk
operations and pauses. History is retained for three days and archived. At the end of each day the sizes and rows of all
tables and indexes, memory, the plans of the hot statements and a drain are measured. From day 5 on nothing may grow by
more than a tenth, memory by no more than a twentieth; no plan may change; autovacuum has to keep up; the drains of the
last days must reach 0.95 of the first ones, in speed and in processor time, each compared with bare SQL. What is kept
for longer is compared from the day on which the first of it is deleted: sessions from day 9, statistics by minute from
day 10, the catalog of PostgreSQL from day 22. Statistics that are retained for more than a month, the audit, inboxes
and the index of the archive may grow with the load, but not faster.
"""


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`no_scenarios`: why interleavings say nothing about it. Invariants and storms may then be missing, too."""

    capability: str
    title: str
    text: str
    invariants: list[str]
    storms: list[str]
    no_scenarios: str | None = None


class PromiseFile(msgspec.Struct, forbid_unknown_fields=True):
    promise: list[Promise]


def promises() -> list[Promise]:
    return msgspec.convert(tomllib.loads(PROMISES.read_text()), PromiseFile).promise


def page(results: Results) -> str:
    """Return the text of the page."""
    mutants = catalogue()
    parts = [HEAD, _recorded(results), _soak(results.soak)]
    parts += [_promise(promise, results, mutants) for promise in promises()]
    return "\n".join(parts)


def _recorded(results: Results) -> str:
    if results == Results():
        commands = ("interleavings", "mutants", "storm-nightly")
        return f"No run is recorded yet: {', '.join(f'`make {name} ARGS=--record`' for name in commands)}.\n"
    lines = ["## Recorded runs", "", "| run | date | commit | result |", "|---|---|---|---|"]
    if (run := results.interleavings) is not None:
        total = sum(each.schedules for each in run.scenarios.values())
        lines.append(
            f"| interleavings, at most {run.preemptions} preemptions and {run.faults} fault | {run.date} "
            f"| {run.commit} | {len(run.scenarios)} scenarios, all of their {total:,} schedules hold |"
        )
    for runs in results.random:
        total, ran = (sum(getattr(each, name) for each in runs.scenarios.values()) for name in ("schedules", "ran"))
        lines.append(
            f"| interleavings at random, seeds {_ranges(runs.seeds)} | {runs.date} | {', '.join(runs.commits)} "
            f"| {len(runs.scenarios)} scenarios, all of {total:,} schedules hold: "
            f"{ran:,} were run, the others repeat one of them |"
        )
    if (found := results.mutants) is not None:
        lines.append(
            f"| mutants | {found.date} | {found.commit} | {sum(found.killed.values())} killed, none survives, "
            f"{sum(found.equivalent.values())} equivalent; the slowest took {found.slowest:.0f} s |"
        )
    storms = [storm for storm in (results.storm, results.carrier_storm) if storm is not None]
    lines += [f"| `{run.command}` | {run.date} | {run.commit} | no finding in {run.seconds:,} s |" for run in storms]
    for storm in storms:
        what = "a carried queue" if storm is results.carrier_storm else "everything at once"
        lines += ["", f"What the storm of {what} with seed {storm.seed} counted:", "", "| what | count |", "|---|--:|"]
        lines += [f"| {name} | {count:,} |" for name, count in storm.figures.items()]
    return "\n".join([*lines, ""])


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text: 1 to 3, 7."""
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = spans[-1][0], number
        else:
            spans.append((number, number))
    return ", ".join(f"{first} to {last}" if first < last else f"{first}" for first, last in spans)


def _soak(run: SoakRun | None) -> str:
    """Return the section of the soak."""
    if run is None:
        return f"{SOAK}\nNo run is recorded yet: `make soak ARGS=--record`.\n"
    memory = ", ".join(f"{name} {size:.0f} MiB" for name, size in run.memory.items())
    rest = f"{run.plans} | {memory} | {run.speed:.2f} of the first | {run.processor:.2f}"
    lines = [
        "| days | date | commit | minutes | jobs | relations | plans | memory | last drains by speed | by CPU |",
        "|--:|---|---|--:|--:|--:|--:|---|--:|--:|",
        f"| {run.days} | {run.date} | {run.commit} | {run.minutes:.0f} | {run.jobs:,} | {run.relations} | {rest} |",
    ]
    return "\n".join([SOAK, *lines, ""])


def _promise(promise: Promise, results: Results, mutants: Sequence[Mutant]) -> str:
    own = [mutant for mutant in mutants if mutant.capability == promise.capability]
    lines = [f"## {promise.title}", "", promise.text.strip(), ""]
    if promise.invariants:
        lines += ["| invariant | what must hold |", "|---|---|"]
        lines += [*(f"| `{name}` | {INVARIANTS[name]} |" for name in promise.invariants), ""]
    if promise.no_scenarios is None:
        lines += [*_scenarios(promise.capability, results.interleavings), ""]
    else:
        lines += [promise.no_scenarios.strip(), ""]
    lines += [f"Mutants ({len(own)}), each with the test that finds it:", "", "| broken | found by |", "|---|---|"]
    lines += [f"| {mutant.name}{_alike(mutant)} | `{mutant.test.partition('::')[2]}` |" for mutant in own]
    if promise.storms:
        lines += ["", f"Storms: {', '.join(f'[{Path(storm).name}](../../{storm})' for storm in promise.storms)}."]
    return "\n".join([*lines, ""])


def _alike(mutant: Mutant) -> str:
    return "" if mutant.equivalent is None else f" (equivalent: {mutant.equivalent})"


def _scenarios(capability: str, run: InterleavingsRun | None) -> Iterable[str]:
    names = [name for name, scenario in SCENARIOS.items() if scenario.capability == capability]
    yield f"Interleavings ({len(names)} scenarios):"
    yield ""
    if run is None:
        yield ", ".join(f"`{name}`" for name in names) + "."
        return
    yield "| scenario | schedules | moves | waits for a lock |"
    yield "|---|--:|--:|--:|"
    for name in names:
        found = run.scenarios.get(name)
        if found is None:
            yield f"| `{name}` | not recorded | | |"
        else:
            yield f"| `{name}` | {found.schedules:,} | {found.moves:,} | {found.waits:,} |"
