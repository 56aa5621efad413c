"""Runs one storm: faults by plan while everything works, then a calm in which all work ends, then the judge."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.facts import one, until
from tests.faults.provider_log import ProviderLog
from tests.storm import app, evidence, final_state
from tests.storm.evidence import Evidence
from tests.storm.faults import FaultRunner
from tests.storm.journal import ClockJumped
from tests.storm.judge import Judge, LimitRules
from tests.storm.plan import FaultKind, StormSize, planned
from tests.storm.world import World, world

RULES = LimitRules(
    slots={"two_at_once": app.SLOTS_OF_AN_ACCOUNT},
    queues={("narrow",): app.SLOTS_OF_THE_QUEUE},
    rates={"rated": (app.STARTS_A_SECOND, app.BURST)},
    ordered={"in_order"},
    transactional={"counted", "gathered"},
)
# Seconds between two looks at the workers, at dead jobs and at the progress.
LOOK_EVERY = 1.0
# Share of the jobs by which faults may be ahead of the producers.
SLACK = 0.05
# Seconds without any change after which the calm is given up.
STANDSTILL = 120.0
# Seconds that are added to a jump to the next due job, so that it is due.
JUST_AFTER = 0.5
OVERDUE = "select count(*) from sereno.schedules where next_run_at < sereno.now() - interval '2 seconds'"
PROGRESS = """
    select concat_ws(' ', (select count(*) from sereno.jobs), (select sum(attempt) from sereno.jobs),
                     (select max(id) from sereno.sessions), (select count(*) from sereno.batches))
"""
# A job that waits for an operator, an outage or a receipt is due minutes later: in the calm the clock jumps there.
WAITING = "select count(*) from sereno.jobs where state <> 'scheduled'"


@dataclass(frozen=True)
class Progress:
    """What a progress line shows: jobs that were accepted, faults that happened, what is left in the calm."""

    accepted: int
    faults: int
    planned: int
    left: int | None
    seconds: float


@dataclass(frozen=True)
class StormReport:
    """The findings of the judge, and what was counted. `skipped`: faults that this machine does not permit."""

    findings: list[str]
    figures: dict[str, int]
    skipped: list[str]
    seconds: float


Show = Callable[[Progress], None]


def run(size: StormSize, seed: int, directory: Path, show: Show = lambda _: None) -> StormReport:
    """Run a storm in an empty directory, which keeps the journals."""
    began = time.monotonic()
    with world(size, directory) as made:
        runner = _blow(made, size, seed, show)
        codes = _calm(made, began, show)
        with psycopg.connect(made.server.url, autocommit=True) as connection:
            state = final_state.read(connection, made.archive, made.rhythms)
        retries = made.retries
    read = evidence.read(made.journals, ProviderLog.read(made.provider_log), state)
    findings = Judge(read, RULES).findings()
    findings += [f"a worker ended with code {code}" for code in codes if code != 0]
    figures = _figures(read) | {"bulk retries of dead jobs": retries}
    return StormReport(findings, figures, [str(kind) for kind in runner.skipped], time.monotonic() - began)


def _blow(made: World, size: StormSize, seed: int, show: Show) -> FaultRunner:
    """Carry out all faults at their times while the producers work."""
    faults = planned(size, seed)
    total = len(faults)
    runner = FaultRunner(made)
    for worker in made.workers.values():
        worker.wait_started()
    made.start_producers(seed)
    until(made.accepted, STANDSTILL)
    began = looked = time.monotonic()
    try:
        for number, fault in enumerate(faults):
            # Producers wait while many jobs wait: on a slow machine the faults keep pace with the work.
            work = size.jobs * (fault.after / size.seconds - SLACK)
            while (left := began + fault.after - time.monotonic()) > 0 or made.accepted() < work:
                time.sleep(min(max(left, LOOK_EVERY / 20), LOOK_EVERY))
                looked = _look(made, looked, Progress(0, number, total, None, time.monotonic() - began), show)
            runner.carry_out(fault)
            looked = _look(made, looked, Progress(0, number + 1, total, None, time.monotonic() - began), show)
        runner.finish()
        while not made.producers_ended():
            time.sleep(LOOK_EVERY / 4)
            looked = _look(made, looked, Progress(0, total, total, None, time.monotonic() - began), show)
    except BaseException:
        runner.abort()
        raise
    return runner


def _look(made: World, looked: float, seen: Progress, show: Show) -> float:
    """Once a second: replace workers that have ended, retry dead jobs, show the progress; fail if a producer did."""
    if time.monotonic() - looked < LOOK_EVERY:
        return looked
    made.producers_ended()
    made.replace_ended()
    made.retry_dead()
    show(Progress(made.accepted(), seen.faults, seen.planned, None, seen.seconds))
    return time.monotonic()


def _calm(made: World, began: float, show: Show) -> list[int]:
    """Let all work end without faults, and stop the workers; return their exit codes."""
    seen, since, is_disabled = "", time.monotonic(), False
    while True:
        made.replace_ended()
        made.retry_dead()
        if not is_disabled and made.server.ask(lambda connection: one(connection, OVERDUE)) == 0:
            made.app.schedules.disable("*", actor="storm")
            is_disabled = True
        left = made.left()
        show(Progress(made.accepted(), 0, 0, left, time.monotonic() - began))
        if is_disabled and left == 0:
            return made.stop_workers()
        now_seen = made.server.ask(lambda connection: str(one(connection, PROGRESS)))
        if now_seen != seen:
            seen, since = now_seen, time.monotonic()
        elif time.monotonic() - since > STANDSTILL:
            raise AssertionError(f"nothing has changed for {STANDSTILL} s, and work is left: {_unfinished(made)}")
        if is_disabled and made.server.ask(lambda connection: one(connection, WAITING)) == 0:
            _jump_to_next(made)
        time.sleep(LOOK_EVERY / 4)


def _jump_to_next(made: World) -> None:
    seconds = made.server.clock_is_behind()
    if seconds > 0:
        before, after = made.server.jump(seconds + JUST_AFTER)
        made.journal.write(ClockJumped(seconds + JUST_AFTER, before, after))


def _unfinished(made: World) -> str:
    queries = (
        "select row_to_json(jobs) from sereno.jobs limit 10",
        "select row_to_json(deliveries) from sereno.deliveries where state in ('pending', 'sending') limit 5",
        "select row_to_json(batches) from sereno.batches limit 5",
        "select row_to_json(sessions) from sereno.sessions where state = 'alive'",
    )
    return str([made.server.ask(lambda c, q=query: c.execute(q.encode()).fetchall()) for query in queries])  # type: ignore[misc]


def _figures(read: Evidence) -> dict[str, int]:
    """Count what the journals and the database show."""
    state, faults = read.state, Counter(fault.what for fault in read.server_faults)
    return {
        "jobs accepted": len(read.accepted),
        "jobs": len(state.ended),
        "attempts": len(read.runs),
        "kills": len(read.kills),
        "kills that hit a running job": read.hits,
        "restarts of PostgreSQL": faults[FaultKind.RESTART],
        "network cuts": len(read.cuts),
        "freezes": len(read.freezes),
        "clock jumps": len(read.jumps),
        "full disks": faults[FaultKind.FULL_DISK],
        "connection limits": faults[FaultKind.NO_CONNECTIONS],
        "slow disks": faults[FaultKind.SLOW_DISK],
        "fires": len(state.fires),
        "groups": len(read.groups),
        "links of chains": sum(job.task == "link" for job in state.ended),
        "signals received": len({signal.job for signal in read.signals}),
        "committed items of iterations": len(state.items),
        "events": len(read.events),
        "deliveries": len(state.deliveries),
        "messages received by the provider": sum(map(len, read.provider.calls.values())),
        "bulk cancels": len(read.cancels),
        "archived rows": state.archived,
    }
