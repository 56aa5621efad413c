"""Every promise has mutants, and invariants, scenarios and storms or a reason. The page has the recorded runs."""

from collections import Counter

from sereno.monitoring.invariants import INVARIANTS
from tests.interleavings.scenarios import SCENARIOS
from tests.mutants.catalogue import catalogue
from tests.proof.page import PAGE, page, promises
from tests.proof.results import ROOT, load


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
