"""A Markdown table of the figures that were saved with --json."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.report import Figure, amount


def table(path: Path) -> str:
    """Return Markdown. If a figure was measured more than once, the last value is shown."""
    figures = {figure.name: figure for figure in _read(path)}
    lines = ["| figure | value | compared |", "|---|--:|---|"]
    lines += [
        f"| {_words(figure.name)} | {amount(figure.value)} {figure.unit} | {figure.compared()} |"
        for figure in figures.values()
    ]
    return "\n".join(lines)


def _read(path: Path) -> Iterable[Figure]:
    return [msgspec.json.decode(line, type=Figure) for line in path.read_bytes().splitlines() if line.strip()]


def _words(name: str) -> str:
    return name.replace("_", " ")
