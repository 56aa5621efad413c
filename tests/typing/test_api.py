"""The promise of the types: a wrong call of a task is an error of mypy, a right one is not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sereno

SNIPPETS = Path(__file__).with_name("snippets.txt")
EXPECTED = re.compile(r"#\s*E:\s*([\w-]+)\s*$")
REPORTED = re.compile(r"^[^:]+:(\d+): error: .*\[([\w-]+)\]$")


def expected() -> dict[int, str]:
    """Lines that end in `# E: code` must be errors, and no others."""
    lines = SNIPPETS.read_text().splitlines()
    return {number: match[1] for number, line in enumerate(lines, start=1) if (match := EXPECTED.search(line))}


@pytest.mark.slow
def test_wrong_calls_are_errors_and_right_ones_are_not(tmp_path: Path) -> None:
    copied = tmp_path / "snippets.py"
    copied.write_text(SNIPPETS.read_text())
    source = Path(sereno.__file__).parent.parent
    # Only what the snippets do is asked about; the types of the package itself are checked elsewhere.
    command = [
        sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary",
        "--show-error-codes", "--no-pretty", "--hide-error-context", "--config-file=", str(copied),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={"MYPYPATH": str(source), "PATH": ""}, check=False
    )
    assert done.returncode in (0, 1), done.stderr or done.stdout
    found = {int(match[1]): match[2] for line in done.stdout.splitlines() if (match := REPORTED.match(line))}
    assert found == expected(), done.stdout
    assert len(expected()) > 20
