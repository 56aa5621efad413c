"""Everything at once under faults, in two lengths; `make storm-nightly` runs the full one."""

from pathlib import Path

import pytest

from tests.storm.plan import KILLS, FaultKind, StormSize, planned
from tests.storm.storm import run


@pytest.mark.quick
def test_a_plan_follows_from_its_size_and_seed() -> None:
    size = StormSize(1000, 50, 4, 8, 4)
    faults = planned(size, 1)
    assert faults == planned(size, 1) != planned(size, 2)
    assert faults == sorted(faults)
    assert sum(fault.kind in KILLS for fault in faults) == size.kills
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert all(0 <= fault.after <= size.seconds for fault in faults)


@pytest.mark.parametrize(
    ("size", "seed"),
    [
        pytest.param(StormSize(2_000, 6, 1, 2, 1), 1, marks=pytest.mark.slow, id="short"),
        pytest.param(StormSize(30_000, 150, 15, 24, 10), 1, marks=pytest.mark.storm, id="medium"),
    ],
)
@pytest.mark.timeout(3600)
def test_nothing_is_lost_repeated_early_or_exceeded_when_everything_fails(
    tmp_path: Path, size: StormSize, seed: int
) -> None:
    report = run(size, seed, tmp_path)
    assert report.findings == []
    assert report.figures["jobs accepted"] >= size.jobs
    assert report.figures["kills"] == size.kills
    assert report.figures["kills that hit a running job"] > 0
    workflows = ("groups", "links of chains", "signals received", "committed items of iterations")
    assert [name for name in ("fires", *workflows) if not report.figures[name]] == []
