"""`python -m tests.mutants`: apply every mutant, and report those that no test finds."""

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed

import click

from bench.recorded import commit_to_record
from tests.mutants.catalogue import catalogue
from tests.mutants.run import MutantRun, run
from tests.proof import results


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="Mutants that run at the same time.")
@click.option("--record", is_flag=True, help="Record the result for docs/why/proof.md.")
def main(names: tuple[str, ...], processes: int, *, record: bool) -> None:
    """Apply mutants and run their tests; without a name, all of them. A name may also be a capability."""
    chosen = [mutant for mutant in catalogue() if not names or {mutant.name, mutant.capability} & {*names}]
    if not chosen:
        raise click.UsageError(f"no mutant {' '.join(names)}")
    commit = commit_to_record(results.FILE) if record else ""
    expected = [mutant for mutant in chosen if mutant.equivalent is None]
    wrong: list[MutantRun] = []
    slowest = 0.0
    with ThreadPoolExecutor(processes) as pool:
        running = [pool.submit(run, mutant) for mutant in expected]
        for number, future in enumerate(as_completed(running), 1):
            done = future.result()
            click.echo(f"{number:>3}/{len(expected)}  {done.status:<9} {done.seconds:5.1f} s  {done.mutant.name}")
            slowest = max(slowest, done.seconds)
            if done.status != "killed":
                wrong.append(done)
    for done in wrong:
        click.echo(f"\n{done.mutant.name} {done.status}: {done.mutant.promise}\n  test: {done.mutant.test}")
        click.echo("\n".join(done.output.splitlines()[-15:]))
    alike = len(chosen) - len(expected)
    click.echo(f"\n{len(expected) - len(wrong)} of {len(expected)} mutants killed; {alike} are equivalent")
    if wrong:
        sys.exit(1)
    if record:
        stored = results.load()
        killed = Counter(mutant.capability for mutant in expected)
        equivalent = Counter(mutant.capability for mutant in chosen if mutant.equivalent is not None)
        stored.mutants = results.MutantsRun(results.today(), commit, killed, equivalent, slowest)
        results.save(stored)


if __name__ == "__main__":
    main()
