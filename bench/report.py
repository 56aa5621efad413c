"""Output of a benchmark: one figure per line, as text or as JSON, and notes on standard error."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import msgspec


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measured value; `ratio` is this value divided by the one named in `against`.

    `low` and `high`: the smallest and the largest ratio of several rounds.
    """

    name: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def less_is_better(self) -> bool:
        return self.unit in ("us/job", "us/delivery", "ms", "s", "MiB", "%")

    def line(self) -> str:
        return f"{self.name:<28} {amount(self.value):>12} {self.unit:<10} {self.compared(' x ')}".rstrip()

    def compared(self, by: str = " of ") -> str:
        """Return the comparison with its spread, such as `0.81 (0.78 to 0.84) of ceiling`; empty if there is none."""
        return "" if self.ratio is None else f"{self.shown_ratio}{by}{(self.against or '').replace('_', ' ')}"

    @property
    def shown_ratio(self) -> str:
        """The ratio with its spread, such as `0.81 (0.78 to 0.84)`; empty if there is none."""
        if self.ratio is None:
            return ""
        spread = "" if self.low is None or self.high is None else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.ratio:.2f}{spread}"


@dataclass(frozen=True)
class Report:
    """Prints each figure when it is known, so that an interrupted run leaves what it has measured."""

    as_json: bool
    figures: list[Figure] = field(default_factory=list)

    def figure(
        self, name: str, value: float, unit: str, against: str | None = None, reference: float | None = None
    ) -> None:
        """Print one figure; `reference` is the value of `against`, in the same unit."""
        ratio = None if not reference else round(value / reference, 3)
        self._print(Figure(name, round(value, 3), unit, against if ratio is not None else None, ratio))

    def rounds(self, name: str, values: Sequence[float], unit: str, against: str, references: Sequence[float]) -> None:
        """Print the median of several rounds, and the median and the spread of their ratios.

        Each round has its own reference, measured next to it: what disturbs the machine disturbs both.
        """
        ratios = [round(value / reference, 3) for value, reference in zip(values, references, strict=True)]
        spread = (min(ratios), max(ratios)) if len(ratios) > 1 else (None, None)
        self._print(Figure(name, round(median(values), 3), unit, against, round(median(ratios), 3), *spread))

    def _print(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(msgspec.json.encode(figure).decode() if self.as_json else figure.line(), flush=True)

    def note(self, text: str) -> None:
        print(f"# {text}", file=sys.stderr, flush=True)


def amount(value: float) -> str:
    """Format a value with about three significant digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"
