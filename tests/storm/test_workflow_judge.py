"""The judge reports each fault of groups, chains, results, signals and iterations, and nothing in sound evidence."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.storm.app import ITEMS
from tests.storm.evidence import Evidence, FinalState, Run
from tests.storm.journal import ClockJumped, GroupAccepted, ResultsSeen, SignalReceived
from tests.storm.judge import Judge
from tests.storm.test_judge import RULES, done, ran

pytestmark = pytest.mark.quick

DAY = 86_400.0


def evidence(*runs: Run, **more: object) -> Evidence:
    """Return evidence in which every job of these runs has succeeded in its last attempt."""
    last = {run.job: run for run in runs}
    ended = [done(run.job, run.task, attempt=run.attempt) for run in last.values()]
    found = Evidence(FinalState(ended=ended, attempts=[(run.job, run.attempt, "crash") for run in runs]), runs=[*runs])
    for name, value in more.items():
        setattr(found, name, value)
    return found


def group(*members: Run, begin: int = 100, results: tuple[int, ...] = (0, 2), **more: object) -> Evidence:
    then = ran(9, "gathered", begin=begin, end=begin + 10, key="g")
    accepted, seen = [GroupAccepted(9, "g", 2)], [ResultsSeen(9, 1, [*results], 50.0)]
    return evidence(*members, then, groups=accepted, results=seen, **more)


def member(job: int, end: int = 10, **more: Any) -> Run:
    return ran(job, "member", end=end, key="g", ended_wall=10.0, **more)


def chain(begin: int = 20, results: tuple[int | None, ...] = (0,), **more: object) -> Evidence:
    first, second = ran(1, "link", key="c", ended_wall=10.0), ran(2, "link", begin=begin, end=begin + 10, key="c")
    return evidence(first, second, results=[ResultsSeen(1, 1, [], 5.0), ResultsSeen(2, 1, [*results], 50.0)], **more)


def signalled(*values: int) -> Evidence:
    return evidence(
        ran(1, "signalled", key="sql:7"), signals=[SignalReceived(1, 1, "sql:7", value) for value in values]
    )


def iterated(*items: int, deaths: int = 0) -> Evidence:
    found = evidence(ran(1, "iterated", attempt=5))
    found.state.items = [(1, item) for item in items]
    found.state.attempts = [(1, number + 1, "dead") for number in range(deaths)]
    return found


SOUND: dict[str, Callable[[], Evidence]] = {
    "a group": lambda: group(member(1), member(2)),
    "a group with a repeated job": lambda: group(
        member(1, outcome=None, was_killed=True), member(1, attempt=2, begin=20, end=30), member(2)
    ),
    "results that were archived": lambda: group(
        member(1), member(2), results=(2,), jumps=[ClockJumped(DAY, 20.0, 21.0)]
    ),
    "a chain": chain,
    "a chain whose result was archived": lambda: chain(results=(None,), jumps=[ClockJumped(DAY, 20.0, 21.0)]),
    "a signal": lambda: signalled(7),
    "an iteration": lambda: iterated(*range(ITEMS)),
    "an iteration that began again": lambda: iterated(*range(ITEMS), 0, 1, deaths=1),
}

FAULTY: dict[str, tuple[Callable[[], Evidence], str]] = {
    "a group that is not complete": (lambda: group(member(1), results=(0,)), "1 jobs of the group g ran, not 2"),
    "a group that ended too early": (
        lambda: group(member(1), member(2, end=101)),
        "job 9 (gathered g) began before job 2, which it waits for, succeeded",
    ),
    "a group with a job that failed": (lambda: group(member(1), member(2, outcome="retry")), "ended (retry)"),
    "a missing result": (lambda: group(member(1), member(2), results=(2,)), "saw the results [2], not [0, 2]"),
    "a missing result before the clock jumped": (
        lambda: group(member(1), member(2), results=(2,), jumps=[ClockJumped(DAY, 60.0, 61.0)]),
        "saw the results [2], not [0, 2]",
    ),
    "a wrong result": (
        lambda: group(member(1), member(2), results=(0, 3), jumps=[ClockJumped(DAY, 20.0, 21.0)]),
        "saw the results [0, 3]",
    ),
    "a chain out of order": (lambda: chain(begin=5), "job 2 (link c) began before job 1"),
    "a chain without a result": (lambda: chain(results=()), "saw the results [], not [0]"),
    "a chain with an empty result": (lambda: chain(results=(None,)), "saw the results [None], not [0]"),
    "results of an unknown run": (lambda: Evidence(results=[ResultsSeen(1, 1, [], 0.0)]), "and never began"),
    "a wrong signal": (lambda: signalled(8), "got the value 8 of the signal sql:7"),
    "two signals": (lambda: signalled(7, 8), "succeeded with 2 values"),
    "no signal": (signalled, "succeeded with 0 values"),
    "a lost item": (lambda: iterated(*range(1, ITEMS)), "item 0 of job 1 was committed 0 times"),
    "a repeated item": (lambda: iterated(*range(ITEMS), 3), "item 3 of job 1 was committed 2 times"),
}


def test_nothing_is_found_in_sound_workflows(subtests: pytest.Subtests) -> None:
    for name, make in SOUND.items():
        with subtests.test(name):
            assert Judge(make(), RULES).findings() == []


def test_each_fault_of_a_workflow_is_found(subtests: pytest.Subtests) -> None:
    for name, (make, words) in FAULTY.items():
        with subtests.test(name):
            found = Judge(make(), RULES).findings()
            assert any(words in finding for finding in found), found
