"""Fits a table to the width of a terminal: drops the least important columns, then truncates names and texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# Characters between two columns.
GAP = 2
# Characters to which texts shrink before a column is dropped, and when none is left to drop.
LEAST = {"name": 16, "wide": 20}
NARROWEST = 8
# The room that is left goes to names up to this width, then to texts, then to longer names, then to longer texts.
ROUNDS = (("name", 32), ("wide", 40), ("name", 10_000), ("wide", 10_000))
ELLIPSIS = "…"


class LayoutColumn(Protocol):
    """What the layout has to know of a column."""

    @property
    def name(self) -> str: ...
    @property
    def style(self) -> str: ...
    @property
    def gives_way(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of the columns that are shown, and their widths."""

    places: tuple[int, ...]
    widths: tuple[int, ...]

    def dropped(self, columns: Sequence[LayoutColumn], filled: Sequence[bool]) -> list[str]:
        """Return the names of the columns whose values are not shown."""
        return [column.name for place, column in enumerate(columns) if filled[place] and place not in self.places]


def layout(columns: Sequence[LayoutColumn], needs: Sequence[int], filled: Sequence[bool], available: int) -> Layout:
    """Return the columns that fit. `needs`: the width of each; `filled`: whether it has any value.

    The first column, states and texts are never dropped while another one is left.
    """
    least = [min(need, LEAST.get(column.style, need)) for column, need in zip(columns, needs, strict=True)]
    shown = list(range(len(columns)))
    for place in _order(columns, filled):
        if _total(least, shown) <= available:
            break
        shown.remove(place)
    if _total(least, shown) > available:
        for place in shown:
            if columns[place].style in LEAST:
                least[place] = min(least[place], NARROWEST)
    widths = _spread(columns, needs, least, shown, available)
    return Layout(tuple(shown), tuple(widths[place] for place in shown))


def middle(text: str, width: int) -> str:
    """Return a name shortened in its middle: names that begin alike mostly differ at their end."""
    if len(text) <= width:
        return text
    if width < NARROWEST:
        return text[: max(0, width - 1)] + ELLIPSIS
    end = (width - 1) * 3 // 5
    return text[: width - 1 - end] + ELLIPSIS + text[-end:]


def _order(columns: Sequence[LayoutColumn], filled: Sequence[bool]) -> list[int]:
    """Return the columns that may be dropped: empty ones, those that give way, and others from right to left."""
    may = [place for place, column in enumerate(columns) if place > 0 and column.style != "state"]
    return sorted(
        (place for place in may if columns[place].style != "wide" or not filled[place]),
        key=lambda place: (filled[place], -columns[place].gives_way, -place),
    )


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[place] for place in shown) + GAP * (len(shown) - 1)


def _spread(
    columns: Sequence[LayoutColumn], needs: Sequence[int], least: Sequence[int], shown: Sequence[int], available: int
) -> list[int]:
    """Return the widths when the room that is left is given to the truncated columns, in rounds, evenly in each."""
    widths = list(least)
    for style, most in ROUNDS:
        group = [place for place in shown if columns[place].style == style]
        while (left := available - _total(widths, shown)) > 0:
            open_ones = [place for place in group if widths[place] < min(needs[place], most)]
            if not open_ones:
                break
            share = max(1, left // len(open_ones))
            for place in open_ones[:left]:
                widths[place] = min(widths[place] + share, needs[place], most)
    return widths
