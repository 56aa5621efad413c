"""Searches the schedules of a scenario: exhaustively up to a bound, at random beyond, or one given schedule."""

from collections.abc import Callable, Sequence
from random import Random

from tests.interleavings.connections import Connections
from tests.interleavings.execution import Choice
from tests.interleavings.scenario import AnyScenario
from tests.interleavings.schedule_runner import ScheduleFailed, ScheduleRunner, Tally
from tests.interleavings.search import DrawnSchedules, Search, at_random, follow, shrink

# Called after each schedule.
Progress = Callable[[Tally], None]


def _silent(_tally: Tally) -> None: ...


def explore_all(
    connections: Connections,
    scenario: AnyScenario,
    *,
    preemptions: int = 2,
    faults: int = 1,
    pinned: bool = False,
    progress: Progress = _silent,
) -> Tally:
    """Run every schedule with at most that number of preemptions and faults."""
    runner = ScheduleRunner(connections, scenario, pinned=pinned)
    search = Search(preemptions)
    for prefix in search:
        divergences: list[Choice] = []
        try:
            decisions = runner.run(follow(prefix, divergences), faults)
        except ScheduleFailed as failure:
            _raise_shortest(runner, failure, faults)
            raise
        search.record(prefix, decisions)
        runner.tally.diverged += bool(divergences)
        progress(runner.tally)
    return runner.tally


def explore_random(
    connections: Connections,
    scenario: AnyScenario,
    *,
    seed: int,
    count: int,
    faults: int = 2,
    pinned: bool = False,
    progress: Progress = _silent,
) -> Tally:
    """Draw `count` random schedules, and run each that was not run before."""
    runner = ScheduleRunner(connections, scenario, pinned=pinned)
    drawn = DrawnSchedules()
    for number in range(count):
        # Not one generator for all: a schedule can be repeated without those before it.
        random = f"{seed} {number}"
        if drawn.contains(at_random(Random(random))):
            runner.tally.repeat()
            continue
        try:
            decisions = runner.run(at_random(Random(random)), faults)
        except ScheduleFailed as failure:
            _raise_shortest(runner, failure, faults)
            raise
        if runner.is_repeatable:
            drawn.add(decisions)
        progress(runner.tally)
    return runner.tally


def repeat(
    connections: Connections, scenario: AnyScenario, schedule: Sequence[Choice], *, pinned: bool = False
) -> list[Choice]:
    """Run one schedule; raise ScheduleFailed if its end is wrong. Return the choices that were not possible."""
    divergences: list[Choice] = []
    runner = ScheduleRunner(connections, scenario, pinned=pinned)
    runner.run(follow(schedule, divergences), most_faults=len(schedule))
    return divergences


def _raise_shortest(runner: ScheduleRunner, failure: ScheduleFailed, faults: int) -> None:
    """Raise the failure of the shortest beginning of the schedule that fails too, if there is one."""
    for prefix in shrink(failure.decisions):
        try:
            runner.run(follow(prefix, []), faults)
        except ScheduleFailed as shorter:
            raise shorter from None
