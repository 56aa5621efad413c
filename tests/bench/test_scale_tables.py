"""The tables of docs/operate/scale.md."""

from bench.scale.tables import SIMULATED, assumption_list, tables

PARTS = {
    "shards": 10.0, "workers": 2.0, "rate": 123_456.0, "p50": 2.71, "p99": 9.9, "lost": 0.0012, "lowest": 90.0,
    "late": 0.004, "wal": 26.0,
}  # fmt: skip
FIGURES = {
    "enqueue_bulk": 10.0, "producer_bulk": 6.0, "enqueue_alone": 320.0, "producer_alone": 110.0, "run": 30.0,
    "worker": 18.0, "cores_1": 19_651.0, "cores_2": 32_643.0, "wal_enqueue": 400.0, "wal_run": 600.0, "history": 250.0,
    "two_shards_others": 0.3, "two_shards_predicted": 41_742.0, "two_shards_measured": 42_338.0,
    **{f"{name}_{part}": value for name, _ in SIMULATED for part, value in PARTS.items()},
}  # fmt: skip


def test_the_tables_have_a_cell_for_each_head_and_follow_from_the_figures() -> None:
    costs, volume, simulated, checked = tables(FIGURES)
    for table in (costs, volume, simulated, checked):
        assert {len(row) for row in table.rows} == {len(table.heads)} == {len(table.alignment)}
    assert ("jobs/s of one core of PostgreSQL", "25,000", "", "") in costs.rows
    assert ("jobs/s drained by one worker, with PostgreSQL on the same two cores", "32,600", "", "") in costs.rows
    assert not [row for row in costs.rows if "benchmark" in row[0]], "nothing of what is not recorded"
    # A thousand jobs a second: 86.4 million rows of 250 bytes, and a megabyte of WAL a second.
    assert volume.rows[2] == ("1,000", "86.4 million", "1.00 MB/s", "86 GB", "21.6 GB", "648 GB")
    assert simulated.rows[1][1:6] == ("10", "2", "123,000", "2.7, 9.9 ms", "0.001 %")
    (compared,) = checked.rows
    assert "other processes used 0.3 cores" in compared[0]
    assert compared[1:] == ("41,700", "42,300", "1.01")


def test_latencies_are_compared_if_they_were_measured() -> None:
    measured = {f"two_shards_{name}_{kind}": 4.0 for name in ("p50", "p99") for kind in ("predicted", "measured")}
    assert [row[3] for row in tables(FIGURES | measured)[3].rows] == ["1.01", "1.00", "1.00"]


def test_the_assumptions_have_the_recorded_costs() -> None:
    text = assumption_list(FIGURES | {"idle_p50": 2.3})
    assert "PostgreSQL 10 µs to enqueue, 50 with each call" in text
    assert text.count("\n- ") == 5
