"""`python -m tests.storm`: run one storm, and report what it found."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

import click

from bench.recorded import commit_to_record
from tests.proof import results
from tests.storm.plan import StormSize
from tests.storm.storm import Progress, StormReport, run

# Characters of the progress bar, and seconds between two lines where there is no terminal.
WIDTH, LINE_EVERY = 30, 10.0


class ProgressLine:
    """A bar with counts on a terminal; elsewhere a line now and then."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = float("-inf")

    def __call__(self, seen: Progress) -> None:
        if seen.left is None:
            share = min(seen.accepted / self._jobs, seen.faults / max(1, seen.planned))
            what = f"{seen.faults:,} of {seen.planned:,} faults"
        else:
            share, what = 1.0, f"calm, {seen.left:,} left"
        filled = int(share * WIDTH)
        text = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {seen.accepted:,} jobs accepted, {what}, {seen.seconds:.0f} s"
        if self._is_terminal:
            click.echo(f"\r{text:<100}", nl=False, err=True)
        elif time.monotonic() - self._shown_at > LINE_EVERY:
            self._shown_at = time.monotonic()
            click.echo(text, err=True)


@click.command()
@click.option("--jobs", default=2_000, show_default=True, help="Jobs that the producers enqueue.")
@click.option("--kills", default=6, show_default=True, help="kill -9 of worker processes and supervisors.")
@click.option("--restarts", default=1, show_default=True, help="Immediate restarts of PostgreSQL.")
@click.option("--cuts", default=2, show_default=True, help="Network cuts; other faults follow this number.")
@click.option("--freezes", default=1, show_default=True, help="Processes that are stopped past their lease.")
@click.option("--seed", default=1, show_default=True, help="Of the plan and of the producers.")
@click.option("--record", is_flag=True, help="Record the figures for docs/why/proof.md.")
@click.option("--keep", is_flag=True, help="Keep the journals and the logs of the workers.")
def main(seed: int, *, record: bool, keep: bool, **numbers: int) -> None:
    """Run everything at once under faults; compare the journals with the database at the end."""
    commit = commit_to_record(results.FILE) if record else ""
    directory = Path(tempfile.mkdtemp(prefix="sereno-journals-"))
    report = None
    try:
        report = run(StormSize(**numbers), seed, directory, ProgressLine(numbers["jobs"]))
    finally:
        if keep or report is None or report.findings:
            click.echo(f"\njournals and logs: {directory}", err=True)
        else:
            shutil.rmtree(directory)
    _print(report)
    if report.findings:
        sys.exit(1)
    if record:
        command = "python -m tests.storm " + " ".join(f"--{name} {value}" for name, value in numbers.items())
        stored = results.load()
        stored.storm = results.StormRun(
            results.today(), commit, f"{command} --seed {seed}", seed, round(report.seconds), report.figures
        )
        results.save(stored)


def _print(report: StormReport) -> None:
    click.echo()
    for name, value in report.figures.items():
        click.echo(f"{name:<40} {value:>12,}")
    click.echo(f"{'seconds':<40} {report.seconds:>12,.0f}")
    for kind in report.skipped:
        click.echo(f"not possible on this machine: {kind}")
    for finding in report.findings:
        click.echo(f"FOUND {finding}")
    click.echo(f"{len(report.findings)} findings" if report.findings else "everything holds")


if __name__ == "__main__":
    main()
