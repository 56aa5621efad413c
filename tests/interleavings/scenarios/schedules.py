"""Schedules: two schedulers at once, and what people change while one fires."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from sereno.database.clock import clock
from sereno.database.statement import Operation, Statement
from sereno.jobs import settlement
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.job import ClaimedJob
from sereno.schedules import operations as schedules
from sereno.schedules import store
from sereno.schedules import tick as ticks
from sereno.schedules.replanner import moved_instants
from sereno.schedules.rules.when import Cron, Every
from sereno.schedules.schedule import NewSchedule
from sereno.schedules.ticker import Ticker, passes
from tests.facts import ten_past
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenario import Scenario
from tests.interleavings.scenarios.job_world import LEASE
from tests.jobs.job_steps import Connection, advance, decided, do, new, session, settled, take

KEYS = ("sync", "report")
CHOSEN = ScheduleFilter(keys=KEYS)
MINUTE = 60.0


@dataclass
class ScheduleWorld:
    """The session of a worker, the jobs that it runs, and what the programs note."""

    session: int
    claimed: list[ClaimedJob] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)


ScheduleProgram: TypeAlias = Callable[[ScheduleWorld], Program]


def _two_due(connection: Connection, overlap: str = "allow") -> ScheduleWorld:
    """Return a world of two schedules that are due."""
    rows = [NewSchedule(key=key, job=new(), when=Every("1m"), overlap=overlap).checked() for key in KEYS]  # type: ignore[arg-type]
    do(connection, store.upsert(rows, "me"))
    advance(connection, MINUTE)
    return ScheduleWorld(session(connection, lease=LEASE))


def _one_runs(connection: Connection, overlap: str = "skip") -> ScheduleWorld:
    """Return a world in which the job of an earlier fire runs, and both schedules are due again."""
    world = _two_due(connection, overlap)
    _fire_all(connection)
    world.claimed = take(connection, world.session)
    advance(connection, MINUTE)
    return world


def _fire_all(connection: Connection) -> None:
    made = passes(Ticker())
    operation = next(made)
    while True:
        with connection.transaction():
            result = do(connection, operation)
        try:
            operation = made.send(result)
        except StopIteration:
            return


def _ticks(world: ScheduleWorld) -> Program:
    """A scheduler: counts ended runs, then fires what is due."""
    yield Run(ticks.end_runs())
    world.notes.setdefault("fired", []).append((yield Run(Ticker().tick(), atomic=True)))


def _tick_once(_world: ScheduleWorld) -> Program:
    yield Run(Ticker().tick(), atomic=True)


def _settles(world: ScheduleWorld) -> Program:
    items = [settled(job, decided()) for job in world.claimed]
    try:
        yield Run(settlement.settle("succeed", world.session, items))
    except ReplyLost:
        yield Run(settlement.settle("succeed", world.session, items))


def _does(operation: Callable[[], Any], note: str = "changed") -> ScheduleProgram:
    def program(world: ScheduleWorld) -> Program:
        world.notes[note] = yield Run(operation(), atomic=True)

    return program


def _jobs_of_fires(connection: Connection) -> Counter[tuple[int, Any]]:
    """Return how many jobs there are for each schedule and instant."""
    rows = connection.execute(
        "select schedule_id, planned_at from sereno.jobs where schedule_id is not null "
        "union all select schedule_id, planned_at from sereno.history where schedule_id is not null"
    ).fetchall()
    return Counter(rows)


def _no_double_fire(connection: Connection, _world: ScheduleWorld | None = None) -> None:
    twice = [fire for fire, count in _jobs_of_fires(connection).items() if count > 1]
    assert not twice, f"fired twice: {twice}"


def _every_instant_once(connection: Connection, world: ScheduleWorld) -> None:
    """Everything due has fired once, also what the schedulers of the schedule left."""
    _fire_all(connection)
    _no_double_fire(connection, world)
    fires = _jobs_of_fires(connection)
    assert len({schedule for schedule, _ in fires}) == len(KEYS), f"a schedule has not fired: {fires}"
    assert len(fires) == len(KEYS), f"more instants than were due: {fires}"


TWO_SCHEDULERS = Scenario(
    name="two_schedulers",
    capability="schedules",
    set_up=_two_due,
    programs={"A": _ticks, "B": _ticks},
    check=_every_instant_once,
    faulty=frozenset("AB"),
)


def _goes_on(connection: Connection, world: ScheduleWorld) -> None:
    """Later instants fire too: no schedule has come to a stop."""
    _no_double_fire(connection, world)
    before = len(_jobs_of_fires(connection))
    owner = session(connection)
    for job in take(connection, owner, 50):
        do(connection, settlement.settle("succeed", owner, [settled(job, decided())]))
    if world.claimed:
        do(connection, settlement.settle("succeed", world.session, [settled(job, decided()) for job in world.claimed]))
    advance(connection, 2 * MINUTE)
    _fire_all(connection)
    enabled = connection.execute("select count(*) from sereno.schedules where state = 'enabled'").fetchone()
    assert enabled is not None
    fired = len(_jobs_of_fires(connection)) - before
    assert fired >= enabled[0], f"{fired} of {enabled[0]} enabled schedules have fired again"
    _no_double_fire(connection, world)


TICK_AND_PAUSE = Scenario(
    name="tick_and_pause",
    capability="schedules",
    set_up=_two_due,
    programs={"A": _ticks, "B": _does(lambda: schedules.pause(CHOSEN, actor="me"))},
    check=_goes_on,
    faulty=frozenset("AB"),
)

TICK_AND_DELETE = Scenario(
    name="tick_and_delete",
    capability="schedules",
    set_up=_two_due,
    programs={"A": _tick_once, "B": _does(lambda: schedules.delete(CHOSEN, actor="me")), "C": _tick_once},
    check=_goes_on,
    faulty=frozenset("A"),
)


def _upserts(interval: str) -> ScheduleProgram:
    return _does(lambda: store.upsert([NewSchedule(key="sync", job=new(), when=Every(interval)).checked()], "me"))


TICK_AND_UPSERT = Scenario(
    name="tick_and_upsert",
    capability="schedules",
    set_up=_two_due,
    programs={"A": _tick_once, "B": _upserts("30s"), "C": _upserts("40s")},
    check=_goes_on,
    faulty=frozenset("A"),
)

TICK_AND_RUN_NOW = Scenario(
    name="tick_and_run_now",
    capability="schedules",
    set_up=_two_due,
    programs={"A": _tick_once, "B": _does(lambda: schedules.run_now("sync", actor="me"))},
    check=_goes_on,
    faulty=frozenset("AB"),
)


def _one_run_at_a_time(connection: Connection, world: ScheduleWorld) -> None:
    running = connection.execute(
        "select schedule_id, count(*) from sereno.jobs where schedule_id is not null group by 1 having count(*) > 1"
    ).fetchall()
    assert not running, f"runs overlap: {running}"
    early = connection.execute(
        "select later.id from sereno.jobs later join sereno.history ended using (schedule_id) "
        "where later.planned_at > ended.planned_at and later.created_at < ended.finished_at"
    ).fetchall()
    assert not early, f"made before the run before them had ended: {early}"
    _goes_on(connection, world)


END_OF_A_RUN = Scenario(
    name="end_of_a_run",
    capability="schedules",
    set_up=_one_runs,
    programs={"S": _settles, "A": _ticks, "B": _ticks},
    check=_one_run_at_a_time,
    faulty=frozenset("A"),
)

HELD_FIRE = Scenario(
    name="held_fire",
    capability="schedules",
    set_up=partial(_one_runs, overlap="queue_one"),
    programs={"S": _settles, "A": _ticks, "B": _tick_once},
    check=_one_run_at_a_time,
    faulty=frozenset("A"),
)


def _planned_with_old_zones(connection: Connection) -> ScheduleWorld:
    """Return a world in which older zone data planned the next instant of both schedules too late."""
    ten_past(connection)
    when = Cron("0 * * * *", tz="Europe/Riga")
    rows = [NewSchedule(key=key, job=new(), when=when, overlap="allow").checked() for key in KEYS]
    do(connection, store.upsert(rows, "me"))
    connection.execute("update sereno.schedules set next_run_at = next_run_at + interval '20 minutes'")
    return ScheduleWorld(session(connection, lease=LEASE))


def _replans(_world: ScheduleWorld) -> Program:
    """A leader with newer zone data plans a page again."""
    rows = yield Run(ticks.zoned(0, 10))
    changed = moved_instants(rows, (yield Run(clock())))
    if changed:
        yield Run(ticks.replan(changed))


def _ticks_when_due(world: ScheduleWorld) -> Program:
    """Another scheduler, after both instants have passed: the planned one and the right one."""
    yield Run(_passes(75 * MINUTE))
    yield from _tick_once(world)


def _passes(seconds: float) -> Operation[None]:
    yield Statement("update sereno.clock set ahead = ahead + make_interval(secs => %(seconds)s)", {"seconds": seconds})


TICK_AND_REPLAN = Scenario(
    name="tick_and_replan",
    capability="schedules",
    set_up=_planned_with_old_zones,
    programs={"A": _ticks_when_due, "R": _replans},
    check=_every_instant_once,
    faulty=frozenset("R"),
)

SCENARIOS = (
    TWO_SCHEDULERS,
    TICK_AND_PAUSE,
    TICK_AND_DELETE,
    TICK_AND_UPSERT,
    TICK_AND_RUN_NOW,
    END_OF_A_RUN,
    HELD_FIRE,
    TICK_AND_REPLAN,
)
