"""`python -m tests.soak`: simulate a month, print a line for each day, and report what grows."""

import sys
from pathlib import Path
from statistics import median

import click
import msgspec

from bench.recorded import commit_to_record
from tests.proof import results
from tests.soak.figures import DayFigures
from tests.soak.judge import drains, judge
from tests.soak.load import Load
from tests.soak.services import FREEZE_AGE
from tests.soak.simulation import simulate
from tests.soak.table import HEAD, conclusion, line


@click.command()
@click.option("--days", default=30, show_default=True, type=click.IntRange(1), help="Simulated days.")
@click.option("--load", "share", default=1.0, show_default=True, help="Share of the full load.")
@click.option("--rounds", default=2, show_default=True, type=click.IntRange(1), help="Drains at the end of each day.")
@click.option("--figures", type=click.Path(path_type=Path), help="Write all figures to this file, as JSON lines.")
@click.option("--judge-only", is_flag=True, help="Judge the figures of this file, without a simulation.")
@click.option("--record", is_flag=True, help="Record the result for docs/why/proof.md.")
def main(days: int, share: float, rounds: int, figures: Path | None, *, judge_only: bool, record: bool) -> None:
    """Simulate days of work by moving sereno's clock, and report everything that grows."""
    if judge_only and figures is None:
        raise click.UsageError("--judge-only needs --figures")
    commit = commit_to_record(results.FILE) if record else ""
    click.echo(HEAD)
    if judge_only and figures is not None:
        found = [msgspec.json.decode(text, type=DayFigures) for text in figures.read_bytes().splitlines()]
        for each in found:
            click.echo(line(each))
    else:
        found = simulate(days, Load().scaled(share) if share < 1 else Load(), rounds, _reporter(figures), _progress)
    findings = judge(found, FREEZE_AGE)
    click.echo(conclusion(found, findings))
    if findings:
        sys.exit(1)
    if record:
        stored = results.load()
        stored.soak = _result(commit, found)
        results.save(stored)


def _reporter(file: Path | None) -> "Reporter":
    if file is not None:
        file.unlink(missing_ok=True)
    return Reporter(file)


class Reporter:
    """Prints a day, and appends its figures to a file."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def __call__(self, figures: DayFigures) -> None:
        _progress("")
        click.echo(line(figures))
        if self._file is not None:
            with self._file.open("ab") as output:
                output.write(msgspec.json.encode(figures) + b"\n")


def _progress(text: str) -> None:
    """Show what happens now, in one line of a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r{text:<60}\r", nl=False, err=True)


def _result(commit: str, days: list[DayFigures]) -> results.SoakRun:
    first, last = drains(days)
    memory = {name: median(figures.memory[name] for figures in days[-5:]) for name in days[-1].memory}
    return results.SoakRun(
        date=results.today(),
        commit=commit,
        days=len(days),
        minutes=round(sum(figures.seconds for figures in days) / 60, 1),
        jobs=sum(figures.jobs for figures in days),
        relations=len(days[-1].relations),
        plans=len(days[-1].plans),
        memory={name: round(value, 1) for name, value in memory.items()},
        speed=round(last.speed / first.speed, 2),
        processor=round(last.processor / first.processor, 2),
    )


if __name__ == "__main__":
    main()
