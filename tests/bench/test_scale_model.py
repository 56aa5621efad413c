"""The model of `python -m bench scale`: capacity, shards for a rate, and the effect of failures."""

from dataclasses import replace

import pytest

from bench.scale.model import DAY, Cluster, Costs, Failures, assumptions, held_jobs, predict, shard_capacity, shards_for

COSTS = Costs(
    batch=1, producer=10e-6, enqueue=20e-6, run=30e-6, worker=20e-6, wal=1000.0, history=500.0, idle=[0.002]
)  # fmt: skip
NONE = Failures(postgres_between=1e12, worker_between=1e12, horizon=DAY)


def test_the_capacity_is_that_of_the_part_which_is_used_up_first() -> None:
    assert shard_capacity(COSTS, Cluster(1, postgres_cores=8)) == pytest.approx(8 / 50e-6)
    assert shard_capacity(COSTS, Cluster(1, postgres_cores=8, workers=1)) == pytest.approx(1 / 20e-6)
    assert shard_capacity(COSTS, Cluster(2, postgres_cores=8, shared_cores=2.0)) == pytest.approx(1 / 80e-6)


def test_as_many_shards_as_the_rate_needs() -> None:
    cluster = Cluster(1, postgres_cores=8, load=0.5)
    assert shards_for(COSTS, 1_000_000, cluster) == 13
    assert shards_for(COSTS, 80_000, cluster) == 1


@pytest.mark.slow
def test_without_failures_nothing_is_lost_or_late_and_shards_add_up() -> None:
    one, ten = (predict(COSTS, Cluster(shards), NONE) for shards in (1, 10))
    assert one.lost == pytest.approx(0)
    assert (one.lowest, one.late) == (1.0, 0.0)
    assert ten.capacity == pytest.approx(10 * one.capacity)
    assert ten.p50 == one.p50
    assert one.p50 > 2.0
    assert one.wal == pytest.approx(one.rate * 1000 / 1e6)
    assert one.history == pytest.approx(one.rate * 500 * DAY / 1e9)


@pytest.mark.slow
def test_failures_of_postgresql_cost_their_share_and_more_shards_lose_less_at_once() -> None:
    failures = Failures(postgres_between=DAY, failover=60.0, worker_between=1e12)
    one, many = (predict(COSTS, Cluster(shards), failures) for shards in (1, 30))
    assert one.lowest == 0.0
    assert many.lowest >= 1 - 3 / 30
    assert many.lost == pytest.approx(60 / DAY, rel=0.1)
    # A backlog of a minute at 60 % is worked off in a minute and a half: 2.5 times the outage is late.
    assert many.late == pytest.approx(2.5 * 60 / DAY, rel=0.1)


@pytest.mark.slow
def test_a_crashed_worker_costs_its_share_and_delays_only_the_jobs_that_it_holds() -> None:
    failures = Failures(postgres_between=1e12, worker_between=DAY, restart=10.0)
    found = predict(COSTS, Cluster(1, postgres_cores=8, workers=4), failures)
    # The workers can do 200,000 jobs a second and PostgreSQL 160,000: without one of four, 150,000 are left.
    crashes = found.workers * failures.horizon / DAY
    assert found.lost == pytest.approx(crashes * 10 / failures.horizon / 16, rel=0.3)
    held = held_jobs(found.rate / 4)
    assert held == pytest.approx(found.rate / 4 * 0.1)
    assert found.late == pytest.approx(crashes * held / (found.rate * failures.horizon), rel=0.3)


@pytest.mark.slow
def test_a_call_with_many_jobs_takes_as_long_as_all_of_them() -> None:
    alone, together = (predict(replace(COSTS, batch=batch), Cluster(1, load=0.05), NONE) for batch in (1, 50))
    until_start = (20e-6 + 15e-6 + 10e-6) * 1000
    assert alone.p50 == pytest.approx(2.0 + until_start, rel=0.01)
    assert together.p50 == pytest.approx(2.0 + 50 * until_start, rel=0.05)


@pytest.mark.slow
def test_a_higher_load_has_a_higher_latency_and_the_same_seed_the_same_result() -> None:
    calm, busy = (predict(COSTS, Cluster(1, load=load), NONE) for load in (0.3, 0.98))
    assert busy.p99 > calm.p99
    assert predict(COSTS, Cluster(1), NONE) == predict(COSTS, Cluster(1), NONE)


def test_the_assumptions_name_the_costs() -> None:
    text = " ".join(assumptions(replace(COSTS, worker=21e-6), Cluster(1), Failures()))
    assert "21 µs" in text
    assert "2 cores" in text
