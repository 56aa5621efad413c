"""The recorded figures, `figures.json`, with which `ratchet` compares.

`python -m bench NAME --record` replaces the figures of one benchmark, and stores when, on what and of which commit
they were measured.
"""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.report import Figure
from bench.workers import BenchmarkFailed

FILE = Path(__file__).with_name("figures.json")


class Recording(msgspec.Struct):
    """The figures of one benchmark. `environment`: versions, settings and machine."""

    date: str
    commit: str
    environment: str
    figures: list[Figure]


def load() -> dict[str, Recording]:
    """Return the recordings by the name of their benchmark."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Recording]) if FILE.exists() else {}


def save(name: str, commit: str, environment: str, figures: list[Figure]) -> None:
    """Replace the recording of one benchmark."""
    recordings = load()
    recordings[name] = Recording(datetime.now(UTC).date().isoformat(), commit, environment, figures)
    ordered = dict(sorted(recordings.items()))
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")


def commit_to_record(file: Path = FILE) -> str:
    """Return the commit of this version, or raise BenchmarkFailed: a changed version could not be checked out again.

    `file`: where the figures are stored; its own changes do not count.
    """
    own = file.relative_to(FILE.parents[1])
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{own}")
    if changed:
        raise BenchmarkFailed(f"commit your changes first: a recorded figure names its commit\n{changed}")
    return _git("rev-parse", "--short=10", "HEAD")


def _git(*words: str) -> str:
    command = ["git", "-C", str(FILE.parents[1]), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
