"""What tests of the schedule commands do and ask."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.conftest import PROGRAM, Command, process_environment

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


def screen(words: list[str], database_url: str, directory: Path, columns: int = 100) -> str:
    """What a terminal of this width shows, without the dim of the headings."""
    ours, theirs = pty.openpty()
    environment = process_environment(
        SERENO_DATABASE_URL=database_url, TERM="xterm", COLUMNS=str(columns), NO_COLOR="1"
    )
    subprocess.run([sys.executable, "-c", PROGRAM, *words], check=True, cwd=directory, env=environment, stdout=theirs)
    text = os.read(ours, 100_000).decode().replace("\x1b[2m", "").replace("\x1b[0m", "")
    os.close(ours)
    os.close(theirs)
    return text
