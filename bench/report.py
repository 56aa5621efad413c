"""Output of a benchmark: one figure per line, as text or as JSON, and notes on standard error."""

import sys
from dataclasses import dataclass

import msgspec


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measured value; `ratio` is this value divided by the one named in `against`."""

    name: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None

    def line(self) -> str:
        compared = "" if self.ratio is None else f"   {self.ratio:.2f} x {self.against}"
        return f"{self.name:<28} {amount(self.value):>12} {self.unit:<8}{compared}".rstrip()


@dataclass(frozen=True)
class Report:
    """Prints each figure when it is known, so that an interrupted run leaves what it has measured."""

    as_json: bool

    def figure(
        self, name: str, value: float, unit: str, against: str | None = None, reference: float | None = None
    ) -> None:
        """Print one figure; `reference` is the value of `against`, in the same unit."""
        ratio = None if not reference else round(value / reference, 3)
        figure = Figure(name, round(value, 3), unit, against if ratio is not None else None, ratio)
        print(msgspec.json.encode(figure).decode() if self.as_json else figure.line(), flush=True)

    def note(self, text: str) -> None:
        print(f"# {text}", file=sys.stderr, flush=True)


def amount(value: float) -> str:
    """Format a value with about three significant digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"
