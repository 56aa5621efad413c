"""Applies a mutant to a copy of the sources, and runs the test that must fail."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal, NamedTuple

from tests.mutants.catalogue import ROOT, Mutant

# Seconds in which its test must find a mutant.
LONGEST = 120
COPIED = ("src", "tests", "examples", "docs", "bench", "deploy", "tools", "pyproject.toml", "conftest.py", "README.md")
OPTIONS = ("-x", "-q", "-n0", "--tier", "all", "-p", "no:cacheprovider")
# Exit codes of pytest: every test passed; some failed.
PASSED, FAILED = 0, 1

MutantStatus = Literal["killed", "survived", "invalid", "timed out"]


class MutantRun(NamedTuple):
    mutant: Mutant
    status: MutantStatus
    seconds: float
    output: str


def run(mutant: Mutant) -> MutantRun:
    """Return its status. `invalid`: the test did not fail but could not run, so the change proves nothing."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy = Path(name)
        for part in COPIED:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy2(source, copy / part)
        mutant.apply(copy)
        try:
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pytest",
                    "-x",
                    "-q",
                    "-n0",
                    "--tier",
                    "all",
                    "-p",
                    "no:cacheprovider",
                    mutant.test,
                ],
                cwd=copy,
                env={**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            output = expired.stdout.decode(errors="replace") if isinstance(expired.stdout, bytes) else ""
            return MutantRun(mutant, "timed out", time.monotonic() - began, output)
    status: MutantStatus = "survived" if done.returncode == PASSED else "killed" if _has_failed(done) else "invalid"
    return MutantRun(mutant, status, time.monotonic() - began, done.stdout)


def _has_failed(done: "subprocess.CompletedProcess[str]") -> bool:
    """Return whether a test failed; an error before or after it says nothing about the test."""
    return done.returncode == FAILED and " failed" in done.stdout.splitlines()[-1]
