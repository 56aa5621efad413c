"""A short run of the main benchmarks, compared with the recorded figures: `python -m bench ratchet`.

Only ratios are compared, because they say something on any machine. It reports what became worse and fails nothing:
a short run scatters.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from bench import drain, enqueue
from bench.context import BenchContext
from bench.recorded import load
from bench.report import Figure, Report

# By name, as they are recorded.
MEASURED: Mapping[str, Callable[[BenchContext], None]] = {"drain": drain.run, "enqueue": enqueue.run}
# A ratio that is worse by more than this share is reported.
TOLERATED = 0.1


class _Silent(Report):
    """Collects figures and prints nothing."""

    def _print(self, figure: Figure) -> None:
        self.figures.append(figure)

    def note(self, text: str) -> None:
        """Ignore it."""


def run(context: BenchContext) -> None:
    """Print every ratio beside the recorded one."""
    worse = 0
    for name, measure in MEASURED.items():
        recorded = load().get(name)
        if recorded is None:
            context.report.note(f"{name} is not recorded: python -m bench {name} --record")
            continue
        report = _Silent(as_json=False)
        measure(replace(context, report=report, quick=True))
        before = {figure.name: figure for figure in recorded.figures}
        for figure in report.figures:
            known = before.get(figure.name)
            if known is None or known.ratio is None or figure.ratio is None:
                continue
            change = figure.ratio / known.ratio - 1
            is_worse = (change if figure.less_is_better else -change) > TOLERATED
            worse += is_worse
            print(
                f"{figure.name:<28} {figure.ratio:5.2f} of {figure.against}, recorded {known.ratio:5.2f} "
                f"({change:+.0%}){'   WORSE' if is_worse else ''}",
                flush=True,
            )
    context.report.note(f"{worse} ratios are more than {TOLERATED:.0%} worse than recorded")
