"""Run a command on a pseudo-terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.cli.conftest import PROGRAM, process_environment


def screen(words: Sequence[str], database_url: str, directory: Path, columns: int = 100) -> str:
    """Return the output on a terminal of this width, without the dim style of headings."""
    environment = process_environment(
        SERENO_DATABASE_URL=database_url, TERM="xterm", COLUMNS=str(columns), NO_COLOR="1"
    )
    return on_terminal(words, environment, directory).replace("\x1b[2m", "").replace("\x1b[0m", "")


def on_terminal(words: Sequence[str], environment: Mapping[str, str], directory: Path, *, check: bool = True) -> str:
    """Return all output until the command ends. `check`: it must succeed."""
    control, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=directory,
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as program:
        # Only the command holds the terminal now, so the output ends with the command.
        os.close(terminal)
        text = b"".join(_parts(control)).decode().replace("\r\n", "\n")
    os.close(control)
    assert program.returncode == 0 or not check, text
    return text


def _parts(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(terminal, 65536)
        except OSError:
            # The other side is closed.
            return
