"""The examples and their tests work where sereno is installed, without the repository."""

import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

from sereno.cli.demo.processes import SYSTEMS
from tests.deploy.dockerfile import ROOT
from tests.deploy.installed_wheel import build, install, run

# Of each example a few tests; all of them run in the same way.
TESTS = (
    "tenders/tests/test_tender.py",
    "separate_worker/tests/test_jobs.py::test_the_api_takes_a_lead_once_and_a_worker_passes_it_on",
    "reminders/tests/test_reminders.py::test_a_due_reminder_is_sent_once_by_repeated_searches",
    "reminders/tests/test_demo.py::test_the_demo_uses_every_channel",
    "reconciliation/tests/test_calendar.py::test_a_missing_or_repeated_hour_fires_once_a_day",
    "triggers/tests/test_when.py",
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tests_of_the_examples_run_from_an_installed_wheel(tmp_path: Path) -> None:
    assert {test.partition("/")[0] for test in TESTS} == set(SYSTEMS)
    python = install(build(tmp_path), tmp_path / "installed", "examples")
    empty = tmp_path / "empty"
    empty.mkdir()
    where = "from sereno.cli.demo.processes import examples; print(examples())"
    examples = Path(run([str(python), "-c", where], empty).strip())
    assert examples.is_relative_to(tmp_path / "installed")
    assert [path.name for path in (examples / "tenders" / "deploy").glob(".env*")] == [".env.example"]
    command = [str(python), "-m", "pytest", "-q", *(str(examples / test) for test in TESTS)]
    said = run(command, empty)
    assert re.search(r"^\d+ passed(, \d+ subtests passed)? in ", said, re.MULTILINE), said
    assert list(empty.iterdir()) == []


def test_installed_tests_know_the_marks_of_the_repository() -> None:
    here = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    wheel = ConfigParser()
    wheel.read(ROOT / "examples" / "wheel-pytest.ini")
    there = wheel["pytest"]["markers"].strip().split("\n")
    assert [line.partition(":")[0] for line in there] == [line.partition(":")[0] for line in here]
