"""The three tiers of the suite: `quick` (make test), `slow` (make test-all runs both) and `storm` (make storm).

A test of functions or of the store is quick unless it is marked otherwise. A test that starts a process, a server or a
browser is expensive: it must be marked `quick` or `slow`, on itself, its class or its module. The closest mark counts.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

QUICK, SLOW, STORM = TIERS = ("quick", "slow", "storm")
# What `--tier` selects.
SELECTIONS = {QUICK: {QUICK}, SLOW: {SLOW}, "all": {QUICK, SLOW}, STORM: {STORM}}
# Fixtures that start a process, a server or a browser.
EXPENSIVE_FIXTURES = frozenset({"browse", "mariadb", "own_server", "process", "running_chromium", "worker"})
# Folders whose tests start processes without such a fixture.
EXPENSIVE_FOLDERS = ("tests/acceptance/", "tests/faults/", "tests/storm/")


def tier_of(node_id: str, marks: Iterable[str], fixtures: Iterable[str]) -> str | None:
    """Return the tier of a test, or None for an expensive test without a mark. `marks`: the closest one first."""
    for mark in marks:
        if mark in TIERS:
            return mark
    if node_id.startswith(EXPENSIVE_FOLDERS) or EXPENSIVE_FIXTURES.intersection(fixtures):
        return None
    return QUICK


def select(items: Sequence[pytest.Item], tier: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests of this selection, and the others."""
    selected: list[pytest.Item] = []
    others: list[pytest.Item] = []
    without: list[str] = []
    for item in items:
        # The last mark of a test is that of its parameters.
        marks = [mark.name for node in reversed(item.listchain()) for mark in reversed(node.own_markers)]
        found = tier_of(item.nodeid, marks, getattr(item, "fixturenames", ()))
        if found is None:
            without.append(item.nodeid)
        else:
            (selected if found in SELECTIONS[tier] else others).append(item)
    if without:
        names = "\n  ".join(without)
        raise pytest.UsageError(
            f"tests in no tier, although they start a process, a server or a browser:\n  {names}\n"
            "Mark each with @pytest.mark.quick or @pytest.mark.slow (or the module: pytestmark = pytest.mark.slow)."
        )
    return selected, others


def is_slow_module(path: Path) -> bool:
    """Return whether all tests of a module are slow: it is marked so, and none of its tests is marked quick."""
    if not (path.suffix == ".py" and path.name.startswith("test_")):
        return False
    text = path.read_text(encoding="utf-8")
    return "\npytestmark = pytest.mark.slow\n" in text and "mark.quick" not in text
