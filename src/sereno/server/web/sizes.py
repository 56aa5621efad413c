"""Sizes in bytes, formatted for people."""

from sereno.server.web.numbers import NONE

STEP = 1024
UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: int | None) -> str:
    """Return a size such as 12 kB or 3.4 GB."""
    if count is None:
        return NONE
    value = float(count)
    for unit in UNITS:
        if value < STEP or unit == UNITS[-1]:
            break
        value /= STEP
    digits = 1 if unit not in UNITS[:2] and value < 100 else 0  # noqa: PLR2004 - two figures are enough
    return f"{value:.{digits}f}\u202f{unit}"
