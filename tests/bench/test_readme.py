"""The benchmark tables of README.md and docs come from the recorded figures."""

import re

import pytest

from bench.peers.catalogue import PEERS
from bench.peers.schedule_catalogue import SCHEDULE_PEERS
from bench.readme import PAGES, rounded, with_tables
from bench.recorded import Recording, load
from bench.report import Figure

EMPTY = "# sereno\n<!-- bench -->\n<!-- /bench -->\n\n<!-- bench schedules -->\nold\n<!-- /bench schedules -->\nend\n"


def recording(*figures: Figure) -> Recording:
    return Recording("2026-11-18", "0123456789", "two cores", list(figures))


DRAIN = recording(
    Figure("ceiling", 50_249.6, "jobs/s"),
    Figure("drain", 36_236, "jobs/s", "ceiling", 0.721, 0.712, 0.733),
    Figure("drain_two", 39_221, "jobs/s", "ceiling", 0.772),
)
PEERS_RECORDING = recording(
    Figure("graphile_batched_drain", 33_490, "jobs/s"),
    Figure("graphile_batched_drain_two", 44_234, "jobs/s"),
    Figure("pgboss_drain", 15_900, "jobs/s"),
    Figure("graphile_enqueue_one", 800, "jobs/s"),
)


def test_the_tables_of_the_readme_are_those_of_the_recorded_figures() -> None:
    for path in PAGES:
        text = path.read_text()
        assert with_tables(text, load()) == text, (
            f"{path.name} differs from bench/figures.json: run `python -m bench readme`"
        )


def test_a_figure_is_shown_with_its_ratio_and_spread() -> None:
    text = with_tables(EMPTY, {"drain": DRAIN})
    assert (
        "| drain, one process | 36,200 jobs/s | 0.72 (0.71 to 0.73) of a bare claim-and-settle loop without handlers "
        "(50,200) |" in text
    )
    assert "- drain: 2026-11-18, commit 0123456789; two cores\n" in text
    assert text.startswith("# sereno\n")
    assert text.endswith("<!-- bench schedules -->\nold\n<!-- /bench schedules -->\nend\n")


def test_what_is_not_recorded_has_no_row() -> None:
    text = with_tables(EMPTY, {"drain": DRAIN})
    assert "history=False" not in text
    assert "enqueue" not in text
    assert "Graphile" not in text


def test_the_best_product_of_a_row_is_bold_and_each_configuration_is_named() -> None:
    text = with_tables(EMPTY, {"drain": DRAIN, "peers": PEERS_RECORDING})
    assert "\n| drain, one process (jobs/s) | **36,200** | 33,500 | 15,900 |" in text
    assert "\n| drain, two processes | 39,200 | **44,200** | |" in text
    assert re.search(r"\| Graphile Worker [\d.]+ \| 96 jobs at a time", text)


def test_a_table_can_be_written_again() -> None:
    once = with_tables(EMPTY, {"drain": DRAIN, "peers": PEERS_RECORDING})
    assert with_tables(once, {"drain": DRAIN, "peers": PEERS_RECORDING}) == once


def test_schedules_of_all_products() -> None:
    late = [("lateness_p50", 16.2), ("lateness_p99", 125.0), ("schedules_cpu", 20.1)]
    ours = recording(*(Figure(name, value, "ms") for name, value in late))
    theirs = recording(
        Figure("dbos_fires", 15.9, "/s"), *(Figure(f"dbos_{name}", value * 100, "ms") for name, value in late)
    )
    text = with_tables(EMPTY, {"schedules": ours, "schedule_peers": theirs})
    assert "| **sereno** | 1,000,000 | 10,000 | 10,000 | 16 ms | 125 ms | 20 % |" in text
    assert re.search(r"\| DBOS [\d.]+ \| 1,000 \| 17 \| 16 \| 1,620 ms \| 12,500 ms \| 2,010 % \|", text)


def test_costs_of_features_are_beyond_those_of_a_plain_job() -> None:
    costs = {"plain": (17.2, 27.6, 9.9), "order_key": (12.4, 30.1, 3.0), "no_history": (-0.4, -8.0, 0.0)}
    recorded = recording(
        *(
            Figure(f"feature_{feature}_{part}", value, "us/job")
            for feature, values in costs.items()
            for part, value in zip(("worker", "server", "enqueue"), values, strict=True)
        )
    )
    text = with_tables("<!-- bench features -->\n<!-- /bench features -->\n", {"features": recorded})
    assert (
        "| a plain job | 17 | 28 | 10 |\n| an order key | +12 | +30 | +3 |\n| `history=False` | -0 | -8 | +0 |" in text
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (36_236, "36,200"),
        (101_949, "102,000"),
        (2_893, "2,890"),
        (134.4, "134"),
        (16.2, "16"),
        (1.98, "2.0"),
        (0.26, "0.26"),
    ],
)
def test_values_are_rounded(value: float, shown: str) -> None:
    assert rounded(value) == shown


def test_every_peer_has_a_pinned_version() -> None:
    for peer in (*PEERS, *(schedules.peer for schedules in SCHEDULE_PEERS)):
        assert re.fullmatch(r"\d+(\.\d+)+", peer.version), peer.name
