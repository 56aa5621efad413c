"""The judge reports each kind of fault in hand-made evidence, and nothing in evidence without one."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.faults.provider_log import ProviderLog
from tests.storm.evidence import Delivery, EndedJob, Evidence, FinalState, Fire, PlannedInstants, Run, read
from tests.storm.journal import (
    CancelAccepted,
    ClockJumped,
    EventAccepted,
    JobAccepted,
    Journal,
    ProcessesFrozen,
    ProcessesKilled,
    RunBegan,
    RunEnded,
    StepRan,
    lines_of,
    now,
)
from tests.storm.judge import MOST_COUNTED, Judge, LimitRules

pytestmark = pytest.mark.quick

RULES = LimitRules(
    slots={"limited": 1},
    queues={("narrow", "narrower"): 1},
    rates={"rated": (10.0, 1.0)},
    ordered={"ordered"},
    transactional={"counted"},
)
BEGIN = datetime(2026, 11, 18, tzinfo=UTC)


def ran(job: int, task: str = "plain", begin: int = 0, end: int = 10, **more: object) -> Run:
    values = {"attempt": 1, "key": "", "worker": "a", "pid": 7, "claimed": 0.0, "outcome": "ok"} | more
    return Run(job=job, task=task, begin=begin, end=end, **values)  # type: ignore[arg-type]


def done(job: int, task: str = "plain", state: str = "succeeded", attempt: int = 1) -> EndedJob:
    return EndedJob(job, task, state, attempt)


def fire(second: int, stands_for: int = 1, job: int | None = None) -> Fire:
    return Fire(1, BEGIN + timedelta(seconds=second), stands_for, job)


def rhythm(last: int) -> dict[int, PlannedInstants]:
    return {1: PlannedInstants("every second", BEGIN, 1.0, BEGIN + timedelta(seconds=last))}


def in_order(*jobs: int) -> Evidence:
    """Two jobs of one order key that ran one after the other, the first one first."""
    return Evidence(
        FinalState(ended=[done(job, "ordered") for job in jobs]),
        accepted=[JobAccepted(job, "ordered") for job in jobs],
        runs=[ran(job, "ordered", begin=20 * place, end=20 * place + 10) for place, job in enumerate(jobs)],
    )


def retried(claimed: float, outcome: str = "retry", jumps: list[ClockJumped] | None = None) -> Evidence:
    """A first attempt that ended at 100 s and asked for a delay of 5 s, and a second one."""
    first = ran(1, outcome="retry", delay=5.0, ended_wall=100.0)
    second = ran(1, begin=20, end=30, attempt=2, claimed=claimed)
    state = FinalState(ended=[done(1, attempt=2)], attempts=[(1, 1, outcome)])
    return Evidence(state, runs=[first, second], jumps=jumps or [])


def two_at_once(task: str, **more: object) -> Evidence:
    runs = [ran(1, task, 0, 10), ran(2, task, 9, 20, **more)]
    return Evidence(FinalState(ended=[done(1, task), done(2, task)]), runs=runs)


def overtaken(*, frozen: bool) -> Evidence:
    """A second attempt that began while the first one ran, whose process was frozen at 5, or not."""
    state = FinalState(ended=[done(1, attempt=2)], attempts=[(1, 1, "crash")])
    runs = [ran(1, end=50), ran(1, begin=20, end=30, attempt=2, pid=8)]
    return Evidence(state, runs=runs, freezes=[ProcessesFrozen([7], 5)] if frozen else [])


def fired(*fires: Fire, last: int) -> Evidence:
    return Evidence(FinalState(fires=fires, schedules=rhythm(last)))


def delivered(state: str = "sent", calls: int = 1, unknowns: int = 0, event: int = 1) -> Evidence:
    log = ProviderLog({5: [(float(n), "taken") for n in range(calls)]} if calls else {}, {})
    found = FinalState(deliveries=[Delivery(5, 1, state, unknowns)], recipients=1)
    return Evidence(found, log, events=[EventAccepted(event)])


SOUND: dict[str, Callable[[], Evidence]] = {
    "nothing": Evidence,
    "a job that ran": lambda: Evidence(FinalState(ended=[done(1)]), accepted=[JobAccepted(1, "plain")], runs=[ran(1)]),
    "a bulk cancel": lambda: Evidence(
        FinalState(ended=[done(1, state="cancelled")]),
        accepted=[JobAccepted(1, "plain", "t")],
        cancels=[CancelAccepted(1, "t")],
    ),
    "an effect before a kill": lambda: Evidence(
        FinalState(ended=[done(1, "counted")], effects=[1]), runs=[ran(1, "counted", outcome=None, was_killed=True)]
    ),
    "a retry on time": lambda: retried(105.0),
    "a retry at once after a kill": lambda: retried(100.0, "crash"),
    "a retry after a jump": lambda: retried(165.0, jumps=[ClockJumped(60.0, 90.0, 91.0)]),
    "a retry during a jump": lambda: retried(105.0, jumps=[ClockJumped(60.0, 99.0, 101.0)]),
    "a frozen process": lambda: overtaken(frozen=True),
    "an order": lambda: in_order(1, 2),
    "limits of other keys": lambda: two_at_once("limited", key="b"),
    "fires": lambda: fired(fire(0), fire(3, 3), last=3),
    "uncounted fires": lambda: fired(fire(0), fire(100_000, MOST_COUNTED), last=100_000),
    "a delivery": delivered,
    "a delivery with an unknown outcome": lambda: delivered(calls=2, unknowns=1),
    "steps": lambda: Evidence(steps=[StepRan(1, 1, 0), StepRan(1, 2, 0), StepRan(1, 2, 1), StepRan(1, 3, 1)]),
}

FAULTY: dict[str, tuple[Callable[[], Evidence], str]] = {
    "a lost job": (lambda: Evidence(accepted=[JobAccepted(1, "plain")]), "is lost"),
    "a job that is left": (lambda: Evidence(FinalState(live=1)), "have not ended"),
    "a dead job": (lambda: Evidence(FinalState(ended=[done(1, state="dead")])), "is dead"),
    "a job that is stored twice": (
        lambda: Evidence(FinalState(ended=[done(1), done(1)]), runs=[ran(1)]),
        "stored 2 times",
    ),
    "a cancelled job that was not to be cancelled": (
        lambda: Evidence(FinalState(ended=[done(1, state="cancelled")]), accepted=[JobAccepted(1, "plain")]),
        "is cancelled, not succeeded",
    ),
    "a job that ran although it was cancelled": (
        lambda: Evidence(
            FinalState(ended=[done(1, state="cancelled")]),
            accepted=[JobAccepted(1, "plain", "t")],
            cancels=[CancelAccepted(1, "t")],
            runs=[ran(1)],
        ),
        "and ran",
    ),
    "a success that never ran": (lambda: Evidence(FinalState(ended=[done(1)])), "never ran"),
    "a success of a killed attempt": (
        lambda: Evidence(FinalState(ended=[done(1)]), runs=[ran(1, outcome=None)]),
        "which ended: None",
    ),
    "an attempt that ran twice": (
        lambda: Evidence(FinalState(ended=[done(1)]), runs=[ran(1), ran(1, begin=20, end=30)]),
        "ran 2 times",
    ),
    "a run of an unknown job": (lambda: Evidence(runs=[ran(1)]), "is not stored"),
    "an attempt that is not stored": (
        lambda: Evidence(FinalState(ended=[done(1, attempt=2)]), runs=[ran(1), ran(1, attempt=2, begin=20, end=30)]),
        "attempt 1 of job 1 (plain) ran and is not stored",
    ),
    "a lost effect": (
        lambda: Evidence(FinalState(ended=[done(1, "counted")]), runs=[ran(1, "counted")]),
        "0 effects",
    ),
    "two effects": (
        lambda: Evidence(FinalState(ended=[done(1, "counted")], effects=[1, 1]), runs=[ran(1, "counted")]),
        "2 effects",
    ),
    "an effect of a job that failed": (lambda: Evidence(FinalState(effects=[1])), "has not succeeded"),
    "an early retry": (lambda: retried(104.9), "0.100 s early"),
    "an early retry after a jump": (lambda: retried(164.9, jumps=[ClockJumped(60.0, 90.0, 91.0)]), "0.100 s early"),
    "two attempts at once": (lambda: overtaken(frozen=False), "still ran"),
    "a repeated step": (lambda: Evidence(steps=[StepRan(1, 1, 0), StepRan(1, 1, 1), StepRan(1, 2, 0)]), "step 0 ran"),
    "a double fire": (
        lambda: Evidence(
            FinalState(ended=[done(1), done(2)]),
            runs=[ran(job, fire=(1, BEGIN.isoformat())) for job in (1, 2)],
        ),
        "fired twice",
    ),
    "a fire that is stored twice": (lambda: fired(fire(0), fire(0, 0), last=0), "has 2 fires"),
    "a missing fire": (lambda: fired(fire(0), fire(2), last=2), "1.000 s before"),
    "an instant that is covered twice": (lambda: fired(fire(0), fire(1, 2), last=1), "covered twice"),
    "no fire at the end": (lambda: fired(fire(0), last=1), "has no fire"),
    "no fire at all": (lambda: fired(last=1), "never fired"),
    "a lost job of a fire": (lambda: fired(fire(0, job=1), last=0), "job 1 of schedule 1"),
    "a job of another fire": (
        lambda: Evidence(
            FinalState(ended=[done(1)], fires=[fire(0, job=1)], schedules=rhythm(0)),
            runs=[ran(1, fire=(1, (BEGIN + timedelta(seconds=1)).isoformat()))],
        ),
        "not for schedule 1",
    ),
    "a limit that was exceeded": (lambda: two_at_once("limited"), "2 jobs of limited"),
    "a limit of a queue that was exceeded": (lambda: two_at_once("narrow", key="b"), "2 jobs of narrow, narrower"),
    "a rate that was exceeded": (
        lambda: Evidence(
            FinalState(ended=[done(1, "rated"), done(2, "rated")]),
            runs=[ran(1, "rated"), ran(2, "rated", claimed=0.05)],
        ),
        "0.050 s too early",
    ),
    "a broken order": (lambda: in_order(2, 1), "began after"),
    "two of an order key at once": (
        lambda: Evidence(
            FinalState(ended=[done(1, "ordered"), done(2, "ordered")]),
            accepted=[JobAccepted(1, "ordered"), JobAccepted(2, "ordered")],
            runs=[ran(1, "ordered"), ran(2, "ordered", begin=5)],
        ),
        "still ran when",
    ),
    "an event without its deliveries": (lambda: delivered(event=2), "event 2 has 0 deliveries"),
    "a delivery that is left": (lambda: delivered("sending"), "still sending"),
    "a delivery that was sent twice": (lambda: delivered(calls=2), "sent too often"),
    "a delivery that was not sent": (lambda: delivered(calls=0), "has not accepted it"),
    "a delivery that is not stored": (
        lambda: Evidence(provider=ProviderLog({5: [(0.0, "taken")]}, {})),
        "which is not stored",
    ),
    "a broken invariant": (lambda: Evidence(FinalState(violations=["orphaned: 1"])), "orphaned"),
}


def test_nothing_is_found_in_sound_evidence(subtests: pytest.Subtests) -> None:
    for name, make in SOUND.items():
        with subtests.test(name):
            assert Judge(make(), RULES).findings() == []


def test_each_fault_is_found(subtests: pytest.Subtests) -> None:
    for name, (make, words) in FAULTY.items():
        with subtests.test(name):
            found = Judge(make(), RULES).findings()
            assert any(words in finding for finding in found), found


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "a")
    killed, ended = RunBegan(1, 1, "plain", "", 5.0, now()), RunBegan(2, 1, "plain", "", 5.0, now())
    end = RunEnded(2, 1, "ok", 0.0, now(), 6.0)
    journal.write(killed, ended, end)
    (path,) = tmp_path.iterdir()
    kill = ProcessesKilled([int(path.name.split(".")[0])], "kill", now())
    journal.write(kill)
    with path.open("ab") as file:
        file.write(b'["RunBegan",3')
    assert list(lines_of(path))[1:] == [killed, ended, end, kill]
    found = read(tmp_path, ProviderLog({}, {}), FinalState())
    assert [(run.job, run.end, run.outcome, run.was_killed) for run in found.runs] == [
        (1, kill.at, None, True),
        (2, end.at, "ok", False),
    ]
    assert found.hits == 1
