"""The small form of the storm over a carried queue; `python -m tests.faults.carrier_storm` runs it in any size."""

import os
import subprocess
import sys

import pytest

from tests.acceptance.conftest import ROOT


@pytest.mark.parametrize(
    ("jobs", "kills"),
    [pytest.param(3_000, 4, marks=pytest.mark.slow), pytest.param(200_000, 60, marks=pytest.mark.storm)],
)
@pytest.mark.timeout(1800)
def test_nothing_that_a_carrier_accepted_is_lost(jobs: int, kills: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.carrier_storm", "--jobs", str(jobs), "--kills", str(kills)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "everything holds" in done.stdout
