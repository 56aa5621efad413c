"""The file of recorded figures."""

from pathlib import Path

import pytest

from bench import recorded
from bench.report import Figure


def test_a_recording_replaces_that_of_its_benchmark_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "FILE", tmp_path / "figures.json")
    assert recorded.load() == {}
    recorded.save("drain", "aaaa", "two cores", [Figure("drain", 1, "jobs/s")])
    recorded.save("archive", "bbbb", "two cores", [Figure("rows", 2, "/s")])
    recorded.save("drain", "cccc", "two cores", [Figure("drain", 3, "jobs/s", "ceiling", 0.7)])
    found = recorded.load()
    assert list(found) == ["archive", "drain"]
    assert (found["drain"].commit, found["drain"].figures) == ("cccc", [Figure("drain", 3, "jobs/s", "ceiling", 0.7)])
    assert found["archive"].commit == "bbbb"
