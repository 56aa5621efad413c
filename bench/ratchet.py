"""A short run of the main benchmarks, compared with a recorded one: `python -m bench ratchet`, with --record the other.

Only ratios are compared, because they say something on any machine, and only with a run of the same length: a worker
needs a moment to reach its speed. It reports what became worse and fails nothing: a short run scatters.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from bench import drain, enqueue
from bench.context import BenchContext
from bench.recorded import load
from bench.report import Figure, Report

# As it is recorded.
NAME = "ratchet"
MEASURED: Sequence[Callable[[BenchContext], None]] = (drain.run, enqueue.run)
# A ratio that is worse by more than this share is reported.
TOLERATED = 0.1


class _Silent(Report):
    """Collects figures and prints nothing."""

    def _print(self, figure: Figure) -> None:
        self.figures.append(figure)

    def note(self, text: str) -> None:
        """Ignore it."""


class Comparison(NamedTuple):
    """A ratio of now beside the recorded one. `change`: of the ratio, as a share of the recorded one."""

    figure: Figure
    recorded: float
    change: float

    @property
    def is_worse(self) -> bool:
        return (self.change if self.figure.less_is_better else -self.change) > TOLERATED

    def line(self) -> str:
        mark = "   WORSE" if self.is_worse else ""
        return (
            f"{self.figure.name:<28} {self.figure.ratio:5.2f} of {self.figure.against}, "
            f"recorded {self.recorded:5.2f} ({self.change:+.0%}){mark}"
        )


def run(context: BenchContext) -> None:
    """Print every ratio beside the recorded one."""
    recordings = load()
    before = recordings[NAME].figures if NAME in recordings else []
    if not before:
        context.report.note(f"no short run is recorded: python -m bench {NAME} --record")
    worse = 0
    for measure in MEASURED:
        report = _Silent(as_json=False)
        measure(replace(context, report=report, quick=True))
        context.report.figures.extend(report.figures)
        for comparison in compare(before, report.figures):
            print(comparison.line(), flush=True)
            worse += comparison.is_worse
    context.report.note(f"{worse} ratios are more than {TOLERATED:.0%} worse than recorded")


def compare(recorded: Iterable[Figure], measured: Iterable[Figure]) -> list[Comparison]:
    """Return the ratios that both have, in the order in which they were measured."""
    before = {figure.name: figure.ratio for figure in recorded}
    return [
        Comparison(figure, known, figure.ratio / known - 1)
        for figure in measured
        if figure.ratio is not None and (known := before.get(figure.name))
    ]
