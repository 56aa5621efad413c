"""`python -m tests.interleavings`: search scenarios, or repeat a schedule that failed."""

import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from bench.recorded import commit_to_record
from tests.databases import DatabasePool
from tests.interleavings.connections import Connections
from tests.interleavings.execution import parse
from tests.interleavings.explore import explore_all, explore_random, repeat
from tests.interleavings.scenarios import SCENARIOS
from tests.interleavings.schedule_runner import ScheduleFailed, Tally
from tests.proof import results
from tests.proof.results import SearchedScenario
from tests.shared_server import shared_server

# Schedules of a scenario with files take about this many times as long.
SLOWER = 10


@contextmanager
def database() -> Iterator[str]:
    """Return the URL of a migrated database that is dropped afterwards."""
    with shared_server(None) as url:
        pool = DatabasePool(url)
        try:
            with pool.copy(pool.template_of_today()) as copied:
                yield copied
        finally:
            pool.close()


@dataclass(frozen=True)
class Search:
    """What to search of one scenario, in a process and a database of its own."""

    name: str
    preemptions: int
    faults: int
    count: int
    seed: int
    pinned: bool
    schedule: str | None

    def run(self) -> tuple[str, Tally | str, float]:
        """Return the name, what was searched or the schedule that failed, and the seconds that it took."""
        began = time.monotonic()
        try:
            with database() as url, Connections(url) as connections:
                found: Tally | str = self._search(connections)
        except ScheduleFailed as failure:
            found = str(failure)
        return self.name, found, time.monotonic() - began

    def _search(self, connections: Connections) -> Tally:
        scenario = SCENARIOS[self.name]
        if self.schedule is not None:
            divergences = repeat(connections, scenario, parse(self.schedule), pinned=self.pinned)
            return Tally(schedules=1, ran=1, diverged=bool(divergences))
        options: Any = {"faults": self.faults, "pinned": self.pinned}
        if self.count:
            count = self.count if scenario.only_rows else math.ceil(self.count / SLOWER)
            return explore_random(connections, scenario, seed=self.seed, count=count, **options)
        return explore_all(connections, scenario, preemptions=self.preemptions, **options)


RANDOM_HELP = (
    f"Draw this number of random schedules of each scenario instead, 1/{SLOWER} of it for those with files. "
    "One that is drawn again is not run again."
)


@click.command()
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option("--preemptions", default=2, show_default=True, help="Search all schedules up to this number.")
@click.option("--faults", default=1, show_default=True, help="Kills and lost replies in one schedule at most.")
@click.option("--random", "count", default=0, help=RANDOM_HELP)
@click.option("--seed", type=int, help="Of the random schedules: 1; with --record, the first that is not recorded.")
@click.option("--pinned", is_flag=True, help="Hold a snapshot from before the first move.")
@click.option("--schedule", help="Repeat this schedule, as it was printed.")
@click.option("--processes", default=os.cpu_count(), show_default=True, help="Scenarios that are searched at once.")
@click.option("--record", is_flag=True, help="Record the counts for docs/why/proof.md; random ones are added up.")
def main(names: tuple[str, ...], *, processes: int, record: bool, seed: int | None, **given: Any) -> None:
    """Search the interleavings of scenarios; without a name, of all of them."""
    unknown = set(names) - SCENARIOS.keys()
    if unknown:
        raise click.UsageError(f"no scenario {', '.join(sorted(unknown))}: there are {', '.join(SCENARIOS)}")
    commit = commit_to_record(results.FILE) if record else ""
    engine = results.engine_digest()
    seed = _free_seed(seed, engine) if record and given["count"] else seed or 1
    searches = [Search(name, seed=seed, **given) for name in names or SCENARIOS]
    total = Tally()
    searched: dict[str, SearchedScenario] = {}
    with shared_server(None), ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(search.run) for search in searches]):
            name, found, seconds = done.result()
            if isinstance(found, str):
                pool.shutdown(cancel_futures=True)
                raise click.ClickException(found)
            total.add(found)
            searched[name] = SearchedScenario(found.schedules, found.moves, found.blocked, found.ran)
            click.echo(f"{name:<30} {found} {seconds:7.1f} s")
    click.echo(f"{'all':<30} {total}")
    if record:
        _record(commit, engine, searched, searches[0])


def _free_seed(wanted: int | None, engine: str) -> int:
    """Return the seed for schedules to record: those of a recorded seed would be counted twice."""
    seeds = results.random_runs(results.load(), engine).seeds
    if wanted in seeds:
        raise click.UsageError(f"--seed {wanted} is recorded for this code: give another one, or none")
    return wanted if wanted is not None else max(seeds, default=0) + 1


def _record(commit: str, engine: str, searched: dict[str, SearchedScenario], search: Search) -> None:
    """Replace the recorded search, or add random schedules to those of the same code."""
    stored = results.load()
    if search.count:
        results.add_random(stored, engine, commit, search.seed, searched)
    else:
        bounds = search.preemptions, search.faults
        stored.interleavings = results.InterleavingsRun(results.today(), commit, *bounds, searched)
    results.save(stored)


if __name__ == "__main__":
    main()
