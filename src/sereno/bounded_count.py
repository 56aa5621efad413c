"""Counts that stop at a bound, so that a list or a page costs the same however much there is."""

from dataclasses import dataclass

# Counts stop at this number and are then shown as "more than".
BOUND = 10_000


@dataclass(frozen=True, slots=True)
class BoundedCount:
    """A number counted up to a bound; if not exact, there are at least this many."""

    value: int
    exact: bool = True

    @classmethod
    def bounded(cls, found: int, bound: int = BOUND) -> "BoundedCount":
        return cls(min(found, bound), found <= bound)

    def __str__(self) -> str:
        if self.exact:
            return f"{self.value:,}"
        return f">{self.value:,}" if self.value >= BOUND else f"≥{self.value:,}"
