"""The text of a tool's result: JSON without invisible characters, short enough for a conversation."""

import json
from collections.abc import Mapping
from typing import Any

# Characters of a result. An assistant reads it whole, so that a long one costs it the rest of the conversation.
LONGEST_RESULT = 40_000
# Characters of one text, such as a traceback, and entries of one list: the first bounds under which a result fits.
BOUNDS = ((4_000, 200), (1_000, 100), (300, 50), (100, 20), (40, 5), (20, 1))
# Levels of lists and objects; arguments of a job may be nested as deep as JSON allows.
DEEPEST = 12


def result_text(value: Any) -> str:
    """Return a value as JSON within the bounds; what was left out is counted where it was."""
    text = ""
    for longest, most in BOUNDS:
        text = json.dumps(_bounded(value, longest, most, DEEPEST), ensure_ascii=False, separators=(",", ":"))
        if len(text) <= LONGEST_RESULT:
            return text
    return visible(text[:LONGEST_RESULT]) + "… (cut: ask for less at once)"


def visible(text: str) -> str:
    """Escape what is not shown, such as zero-width and directional characters: a person must see what is read."""
    return "\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n"))


def _escaped(line: str) -> str:
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in line)


def _bounded(value: Any, longest: int, most: int, depth: int) -> Any:
    if isinstance(value, str):
        return _cut(value, longest)
    if isinstance(value, Mapping | list) and depth == 0:
        return f"… ({len(value)} entries, nested too deep)"
    if isinstance(value, Mapping):
        shown = dict(list(value.items())[:most])
        content = {_cut(str(name), longest): _bounded(each, longest, most, depth - 1) for name, each in shown.items()}
        return content if len(value) <= most else {**content, "…": f"{len(value) - most} more"}
    if isinstance(value, list):
        items = [_bounded(each, longest, most, depth - 1) for each in value[:most]]
        return items if len(value) <= most else [*items, f"… ({len(value) - most} more)"]
    return value


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return visible(text)
    return f"{visible(text[:longest])}… ({len(text) - longest} more characters)"
