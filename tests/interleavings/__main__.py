"""`python -m tests.interleavings`: search scenarios, or repeat a schedule that failed."""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from bench.recorded import commit_to_record
from tests.databases import DatabasePool
from tests.interleavings.execution import parse
from tests.interleavings.explore import explore_all, explore_random, repeat
from tests.interleavings.scenarios import SCENARIOS
from tests.interleavings.schedule_runner import ScheduleFailed, Tally
from tests.proof import results
from tests.shared_server import shared_server


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


@click.command()
@click.argument("names", nargs=-1, metavar="[SCENARIO]...")
@click.option("--preemptions", default=2, show_default=True, help="Search all schedules up to this number.")
@click.option("--faults", default=1, show_default=True, help="Kills and lost replies in one schedule at most.")
@click.option("--random", "count", default=0, help="Run this number of random schedules instead.")
@click.option("--seed", default=1, show_default=True, help="Of the random schedules.")
@click.option("--pinned", is_flag=True, help="Hold a snapshot from before the first move.")
@click.option("--schedule", help="Repeat this schedule, as it was printed.")
@click.option("--record", is_flag=True, help="Record the counts for docs/why/proof.md.")
def main(names: tuple[str, ...], schedule: str | None, count: int, *, record: bool, **options: Any) -> None:
    """Search the interleavings of scenarios; without a name, of all of them."""
    unknown = set(names) - SCENARIOS.keys()
    if unknown:
        raise click.UsageError(f"no scenario {', '.join(sorted(unknown))}: there are {', '.join(SCENARIOS)}")
    commit = commit_to_record(results.FILE) if record else ""
    total = Tally()
    searched: dict[str, results.SearchedScenario] = {}
    with database() as url:
        for name in names or SCENARIOS:
            began = time.monotonic()
            try:
                found = asyncio.run(_search(url, name, schedule, count, **options))
            except ScheduleFailed as failure:
                click.echo(str(failure))
                sys.exit(1)
            total.add(found)
            searched[name] = results.SearchedScenario(found.schedules, found.moves, found.blocked)
            click.echo(f"{name:<40} {found}  {time.monotonic() - began:6.1f} s")
    click.echo(f"{'all':<40} {total}")
    if record:
        _record(commit, searched, is_random=bool(count), **options)


def _record(commit: str, searched: dict[str, results.SearchedScenario], *, is_random: bool, **options: Any) -> None:
    """Replace the recorded run, or add random schedules to that of the same commit."""
    stored = results.load()
    run = stored.interleavings
    if is_random:
        if run is None or run.commit != commit:
            raise click.UsageError("record the search without --random first, on the same commit")
        run.random = searched
    else:
        bounds = options["preemptions"], options["faults"]
        stored.interleavings = results.InterleavingsRun(results.today(), commit, *bounds, searched)
    results.save(stored)


async def _search(
    url: str, name: str, schedule: str | None, count: int, *, preemptions: int, faults: int, seed: int, pinned: bool
) -> Tally:
    scenario = SCENARIOS[name]
    if schedule is not None:
        divergences = await repeat(url, scenario, parse(schedule), pinned=pinned)
        return Tally(schedules=1, diverged=bool(divergences))
    if count:
        return await explore_random(url, scenario, seed=seed, count=count, faults=faults, pinned=pinned)
    return await explore_all(url, scenario, preemptions=preemptions, faults=faults, pinned=pinned)


if __name__ == "__main__":
    main()
