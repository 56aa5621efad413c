"""Figures of a benchmark: medians, ratios and their spread."""

import msgspec
import pytest

from bench.report import Figure, Report


def test_rounds_are_compared_each_with_its_own_reference(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(as_json=False)
    report.rounds("drain", [10.0, 30.0, 20.0], "jobs/s", "ceiling", [20.0, 40.0, 25.0])
    assert report.figures == [Figure("drain", 20.0, "jobs/s", "ceiling", 0.75, 0.5, 0.8)]
    assert (
        capsys.readouterr().out
        == "drain                               20.00 jobs/s     0.75 (0.50 to 0.80) x ceiling\n"
    )


def test_one_round_has_no_spread() -> None:
    report = Report(as_json=False)
    report.rounds("drain", [10.0], "jobs/s", "ceiling", [20.0])
    assert report.figures[0].compared() == "0.50 of ceiling"


def test_a_figure_without_a_reference_is_not_compared() -> None:
    report = Report(as_json=False)
    report.figure("drain", 10, "jobs/s", "ceiling", 0)
    assert report.figures == [Figure("drain", 10, "jobs/s")]


def test_json_output_can_be_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    Report(as_json=True).rounds("drain", [10.0, 12.0], "jobs/s", "ceiling", [20.0, 20.0])
    assert msgspec.json.decode(capsys.readouterr().out, type=Figure) == Figure(
        "drain", 11.0, "jobs/s", "ceiling", 0.55, 0.5, 0.6
    )
