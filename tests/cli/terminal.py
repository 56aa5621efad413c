"""Run a command on a pseudo-terminal."""

import os
import pty
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sereno.cli.main import main


def screen(
    words: Sequence[str], database_url: str, directory: Path, columns: int = 100, *, is_coloured: bool = False
) -> str:
    """Return the output on a terminal of this width, without the dim style of headings.

    The command runs in this process, because it starts much faster there; only its streams are those of the terminal.
    """
    environment = {"SERENO_DATABASE_URL": database_url, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    if not is_coloured:
        environment["NO_COLOR"] = "1"
    control, terminal = pty.openpty()
    output: list[bytes] = []
    # A terminal whose output is not read blocks the writer.
    reader = threading.Thread(target=lambda: output.extend(_parts(control)))
    reader.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for name, value in environment.items():
            patch.setenv(name, value)
        with os.fdopen(os.dup(terminal)) as given, os.fdopen(terminal, "w", encoding="utf-8") as shown:
            patch.setattr(sys, "stdin", given)
            patch.setattr(sys, "stdout", shown)
            patch.setattr(sys, "stderr", shown)
            with pytest.raises(SystemExit) as ended:
                main(list(words), prog_name="sereno")
    reader.join()
    os.close(control)
    text = b"".join(output).decode().replace("\r\n", "\n").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert ended.value.code == 0, text
    return text


def _parts(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(terminal, 65536)
        except OSError:
            # The other side is closed.
            return
