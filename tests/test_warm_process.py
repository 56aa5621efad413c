"""Warm processes behave as new interpreters do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.facts import until
from tests.warm_process import WarmProcess, run

pytestmark = pytest.mark.quick

FACTS = """
import json, os, sys, tempfile, time
found = [__name__, sys.argv, sys.path[:2], os.getcwd(), os.environ.get("GIVEN"), tempfile.gettempdir(), time.tzname]
print(json.dumps(found))
sys.stderr.write("not an error")
sys.exit(7)
"""


@pytest.mark.parametrize("how", ["file", "program", "module"])
def test_a_program_finds_what_it_would_find_in_a_new_interpreter(tmp_path: Path, how: str) -> None:
    (tmp_path / "facts.py").write_text(FACTS)
    words = {"file": ["facts.py"], "program": ["-c", FACTS], "module": ["-m", "facts"]}[how]
    command = [sys.executable, *words, "one", "two words"]
    environment = {"GIVEN": "…", "TMPDIR": str(tmp_path), "TZ": "America/Sao_Paulo", "PYTHONPATH": str(tmp_path.parent)}
    warm = run(command, cwd=tmp_path, env=environment, timeout=60)
    cold = subprocess.run(
        command, check=False, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", timeout=60
    )
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)
    assert warm.returncode == 7


def test_an_error_ends_it_with_a_traceback() -> None:
    ended = run([sys.executable, "-c", "1 / 0"], timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_signals_input_and_output_are_those_of_a_process() -> None:
    with WarmProcess(
        [sys.executable, "-c", "import sys; print(sys.stdin.readline(), flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("hello\n")
        process.stdin.flush()
        assert process.stdout.readline() == "hello\n"
        assert os.getsid(process.pid) == process.pid
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
        until(lambda: process.poll() == -signal.SIGKILL)


def test_what_cannot_be_forked_is_refused() -> None:
    for command in (["/bin/true"], [sys.executable, "-O", "-c", "pass"]):
        with pytest.raises(ValueError, match="not a Python program"):
            WarmProcess(command)
    with pytest.raises(ValueError, match="only"):
        WarmProcess([sys.executable, "-c", "pass"], umask=0)
