"""Temporary directories: those of a killed process are removed by the next one."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sereno.archive.scratch import OLD, scratch
from tests.warm_process import WarmProcess

PROGRAM = """
import os, sys, time
from sereno.archive.scratch import scratch

with scratch("try") as directory:
    (directory / "half").write_text("of a file")
    os.utime(directory, (0, 0))
    print(directory, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@contextmanager
def other() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process with an old directory of its own."""
    with WarmProcess(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())


def test_a_directory_is_removed_at_the_end(own_place: Path) -> None:
    with scratch("try") as directory:
        (directory / "file").write_text("of rows")
        assert list(own_place.iterdir()) == [directory]
    assert list(own_place.iterdir()) == []


def test_the_directory_of_a_killed_process_is_removed_by_the_next(own_place: Path) -> None:
    with other() as (process, left):
        with scratch("try"):
            assert (left / "half").exists(), "the owner is alive"
        process.send_signal(signal.SIGKILL)
    assert (left / "half").exists()
    with scratch("other"):
        assert left.exists(), "the directory has another prefix"
    with scratch("try") as directory:
        assert list(own_place.iterdir()) == [directory]


def test_a_young_directory_is_not_removed(own_place: Path) -> None:
    """Its owner may have just created it and not locked it yet."""
    young, old = own_place / "sereno-try-young", own_place / "sereno-try-old"
    for made, age in ((young, OLD / 2), (old, OLD * 2)):
        made.mkdir()
        os.utime(made, (time.time() - age, time.time() - age))
    with scratch("try"):
        assert young.exists()
        assert not old.exists()


def test_other_entries_with_the_prefix_are_not_removed(own_place: Path) -> None:
    precious = own_place / "precious"
    precious.mkdir()
    (own_place / "sereno-try-link").symlink_to(precious)
    (own_place / "sereno-try-file").write_text("no directory")
    for name in ("sereno-try-link", "sereno-try-file", "precious"):
        os.utime(own_place / name, (0, 0), follow_symlinks=False)
    with scratch("try"):
        pass
    assert {path.name for path in own_place.iterdir()} == {"precious", "sereno-try-link", "sereno-try-file"}
