"""The import-linter contracts in pyproject.toml: packages import downwards only, and decision modules do no I/O."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_packages_import_only_packages_below_them() -> None:
    linted = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"],
        check=False,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert linted.returncode == 0, linted.stdout
    assert "3 kept, 0 broken" in linted.stdout, "a contract is missing"
