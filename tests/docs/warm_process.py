"""Runs a program in a process of its own that has loaded sereno already: a new interpreter mostly imports modules."""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = ["sereno.app", "sereno.testing.kit", "sereno.worker.worker", __name__]


def run(program: Path, environment: Mapping[str, str], timeout: float) -> tuple[int | None, str]:
    """Run it in its folder; return its exit code, None after the timeout, and its output."""
    CONTEXT.set_forkserver_preload(PRELOADED)
    output = program.with_suffix(".output")
    process = CONTEXT.Process(target=_run, args=(program, dict(environment), output))
    process.start()
    process.join(timeout)
    if process.is_alive():
        process.kill()
        process.join()
        return None, output.read_text()
    return process.exitcode, output.read_text()


def _run(program: Path, environment: dict[str, str], output: Path) -> None:
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(program.parent)
    sys.argv = [program.name]
    sys.path.insert(0, str(program.parent))
    runpy.run_path(program.name, run_name="__main__")
