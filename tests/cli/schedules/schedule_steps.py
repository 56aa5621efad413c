"""Shared steps of the tests of the schedule commands."""

import json
from typing import Any

from tests.cli.conftest import Command

APPLICATION = """
from sereno import Sereno
app = Sereno()

@app.task(queue="menus", priority=2)
def refresh_menu(store: int, note: str = "") -> None: ...
"""


def add(sereno: Command, key: str, *words: str) -> dict[str, Any]:
    result = sereno("schedule", "add", key, "--task", "work", "--unchecked", "-o", "json", *words)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def shown(sereno: Command, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sereno("schedule", "show", key, "-o", "json").stdout)
    return found
