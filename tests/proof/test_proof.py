"""Every promise has mutants, and invariants, scenarios and storms or a reason. The page has the recorded runs."""

from collections import Counter
from pathlib import Path

from sereno.monitoring.invariants import INVARIANTS
from tests.interleavings.scenarios import SCENARIOS
from tests.mutants.catalogue import catalogue
from tests.proof.page import PAGE, page, promises
from tests.proof.results import ROOT, Results, SearchedScenario, add_random, engine_digest, load


def test_the_page_is_that_of_the_recorded_runs() -> None:
    assert PAGE.read_text() == page(load()), f"{PAGE.name} is not up to date: run `python -m tests.proof`"


def test_every_invariant_belongs_to_one_promise() -> None:
    counts = Counter(name for promise in promises() for name in promise.invariants)
    assert counts == Counter(INVARIANTS.keys())


def test_every_promise_is_searched_mutated_and_stormed() -> None:
    searched = {scenario.capability for scenario in SCENARIOS.values()}
    mutated = {mutant.capability for mutant in catalogue()}
    for promise in promises():
        assert promise.capability in mutated, f"{promise.capability} has no mutant in tests/mutants"
        assert all((ROOT / storm).is_file() for storm in promise.storms)
        if promise.no_scenarios is not None:
            assert promise.capability not in searched, f"{promise.capability} has scenarios: remove its no_scenarios"
            continue
        assert promise.capability in searched, f"{promise.capability} has no scenario in tests/interleavings"
        assert promise.invariants, f"{promise.capability} has no invariant"
        assert promise.storms, f"{promise.capability} has no storm"


def test_every_scenario_and_every_mutant_belongs_to_a_promise() -> None:
    known = {promise.capability for promise in promises()}
    assert {scenario.capability for scenario in SCENARIOS.values()} <= known
    assert {mutant.capability for mutant in catalogue()} <= known


def test_random_schedules_of_the_same_engine_are_added_up() -> None:
    stored = Results()
    add_random(stored, "engine 1", "c1", 1, {"a": SearchedScenario(10, 100, 5, 8), "b": SearchedScenario(1, 8, 0, 1)})
    add_random(stored, "engine 1", "c2", 2, {"a": SearchedScenario(20, 200, 6, 9)})
    add_random(stored, "engine 1", "c2", 3, {"a": SearchedScenario(30, 300, 7, 10)})
    add_random(stored, "engine 2", "c3", 7, {"a": SearchedScenario(1, 9, 1)})
    first, second = stored.random
    assert (first.commits, first.seeds) == (["c1", "c2"], [1, 2, 3])
    assert first.scenarios == {"a": SearchedScenario(60, 600, 18, 27), "b": SearchedScenario(1, 8, 0, 1)}
    assert (second.engine, second.commits, second.seeds) == ("engine 2", ["c3"], [7])
    rows = [line for line in page(stored).splitlines() if line.startswith("| interleavings at random")]
    assert len(rows) == 2
    assert "seeds 1 to 3 |" in rows[0]
    assert "c1, c2 | 2 scenarios, all of 61 schedules hold: 28 were run," in rows[0]
    assert "seeds 7 |" in rows[1]


def test_the_digest_of_the_engine_follows_its_code(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "cli").mkdir()
    query, command = tmp_path / "jobs" / "claim.sql", tmp_path / "cli" / "main.py"
    query.write_text("select 1")
    first = engine_digest(tmp_path)
    command.write_text("print()")
    assert engine_digest(tmp_path) == first
    query.write_text("select 2")
    assert engine_digest(tmp_path) != first
