"""The simulation of `python -m bench scale` against results that are known in closed form."""

from math import factorial
from random import Random
from statistics import mean

import pytest

from bench.scale.outages import Outage, capacity_steps, departures, draw_outages, late_jobs, lost_share
from bench.scale.queueing import Visit, constant, exponential, percentile, poisson, sojourns

JOBS = 20_000


def times(rate: float, servers: int, draw: object, *visits: Visit, counted: int | None = None) -> list[float]:
    rng = Random(7)
    arrivals = poisson(rng, rate, JOBS)
    route = visits or (Visit("one", 1.0),)
    how = exponential if draw == "exponential" else constant
    return sojourns(arrivals, {"one": servers}, route, counted=counted or len(route), rng=rng, draw=how)


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that a job has to wait; `load`: arrival rate times service time."""
    last = load**servers / factorial(servers) * servers / (servers - load)
    return last / (sum(load**n / factorial(n) for n in range(servers)) + last)


def test_one_exponential_server_has_the_mean_and_the_percentiles_of_m_m_1() -> None:
    found = times(0.7, 1, "exponential")
    assert mean(found) == pytest.approx(1 / (1 - 0.7), rel=0.06)
    # The time in the system is exponential: the median is its mean times ln 2.
    assert percentile(found, 0.5) == pytest.approx(0.693 / (1 - 0.7), rel=0.06)


def test_one_constant_server_has_the_mean_of_m_d_1() -> None:
    """Pollaczek and Khinchine: half of the wait of M/M/1."""
    assert mean(times(0.7, 1, "constant")) == pytest.approx(1 + 0.7 / (2 * (1 - 0.7)), rel=0.04)


def test_several_servers_have_the_mean_of_m_m_c() -> None:
    rate, servers = 3.2, 4
    expected = 1 + erlang_c(servers, rate) / (servers - rate)
    assert mean(times(rate, servers, "exponential")) == pytest.approx(expected, rel=0.05)


@pytest.mark.slow
def test_visits_after_the_counted_ones_occupy_the_station_and_are_not_counted() -> None:
    """Two visits of half a second load the station like one of a second."""
    half = Visit("one", 0.5)
    found = times(0.7, 1, "constant", half, half, counted=1)
    assert len(found) == JOBS
    assert mean(found) < mean(times(0.7, 1, "constant", half, half, counted=2))
    assert mean(found) > mean(times(0.7, 1, "constant", half, counted=1))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_times() -> None:
    assert times(0.9, 1, "exponential")[:100] == times(0.9, 1, "exponential")[:100]


def test_one_outage_makes_the_jobs_late_that_the_closed_form_says() -> None:
    """During d seconds nothing is done; the backlog rate * d is then worked off at capacity - rate."""
    rate, full, length, after, horizon = 60.0, 100.0, 30.0, 1.0, 1000.0
    steps = capacity_steps([(full, [Outage(100, 100 + length)])], horizon)
    points = departures(steps, rate, horizon)
    assert points[-1][1] == pytest.approx(rate * horizon), "every job is done in the end"
    expected = rate * (length + (rate * length - after * full) / (full - rate))
    assert late_jobs(points, rate, after) == pytest.approx(expected, rel=1e-6)
    assert late_jobs(points, rate, 0.0) == pytest.approx(rate * length * full / (full - rate), rel=1e-6)
    assert late_jobs(points, rate, length + 1) == 0
    assert lost_share(steps, full, horizon) == pytest.approx(length / horizon)


def test_outages_that_overlap_add_up_and_the_slowest_tier_decides() -> None:
    workers = [Outage(0, 10, 0.5), Outage(5, 15, 0.5)]
    steps = capacity_steps([(100.0, []), (120.0, workers)], 20.0)
    assert [(step.at, step.capacity) for step in steps] == [(0, 60), (5, 0), (10, 60), (15, 100)]


def test_a_backlog_that_never_ends_makes_all_later_jobs_late() -> None:
    steps = capacity_steps([(50.0, [])], 100.0)
    points = departures(steps, 100.0, 100.0)
    assert points[-1][1] == pytest.approx(50.0 * 100)
    # The job that arrives at t is done at 2 t: those from second 10 on are late by more than ten seconds.
    assert late_jobs(points, 100.0, 10.0) == pytest.approx(100.0 * (90 - 10), rel=1e-6)


def test_the_lost_share_of_drawn_outages_is_repair_over_mean_time_between_failures() -> None:
    rng, horizon = Random(3), 2_000_000.0
    found = draw_outages(rng, 900.0, 100.0, horizon)
    assert lost_share(capacity_steps([(1.0, found)], horizon), 1.0, horizon) == pytest.approx(0.1, rel=0.05)
