"""The table of a soak: one line for each day."""

from collections.abc import Sequence
from statistics import median

from tests.soak.figures import DayFigures
from tests.soak.judge import RETAINED, Finding

MEBIBYTE = 2**20
HEAD = (
    f"{'day':>3} {'jobs':>7} {'MiB':>7} {'rows':>8} {'tables':>6} {'dead':>7} {'vacuums':>7} {'age':>8} "
    f"{'worker':>7} {'scheduler':>9} {'server':>7} {'drain':>6} {'cpu':>5} {'s':>5}"
)


def line(figures: DayFigures) -> str:
    """Return the line of one day. The size is that of all relations but those that are retained by design."""
    own = {name: each for name, each in figures.relations.items() if not name.startswith("catalog:")}
    limited = [each for name, each in own.items() if name.partition(".")[0] not in RETAINED]
    memory = figures.memory
    return (
        f"{figures.day:>3} {figures.jobs:>7,} {sum(each.bytes for each in limited) / MEBIBYTE:>7.1f} "
        f"{sum(each.rows for each in limited):>8,} "
        f"{sum(each.relations for name, each in own.items() if '.' not in name):>6} "
        f"{sum(each.dead for each in own.values()):>7,} {figures.vacuums:>7,} {figures.frozen_age:>8,} "
        f"{memory['worker']:>7.1f} {memory['scheduler']:>9.1f} {memory['server']:>7.1f} "
        f"{median(each.speed for each in figures.drain):>6.2f} "
        f"{median(each.processor for each in figures.drain):>5.2f} "
        f"{figures.seconds:>5.0f}"
    )


def conclusion(days: Sequence[DayFigures], findings: Sequence[Finding]) -> str:
    """Return what was found, in words."""
    if not findings:
        return f"Nothing grows: {len(days)} days, {sum(figures.jobs for figures in days):,} jobs."
    return "\n".join([f"{len(findings)} findings:", *(f"- {finding}" for finding in findings)])
