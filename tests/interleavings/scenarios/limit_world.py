"""The world of scenarios about limits: workers that claim lanes, and who runs at each moment."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sereno.jobs import settlement, transitions
from sereno.jobs.job import PRIORITIES, ClaimedJob
from sereno.jobs.limits import lane_claim
from sereno.jobs.limits.lane_claim import LaneClaim
from sereno.jobs.limits.lane_decision import FAIR_BAND
from sereno.worker import sessions
from sereno.worker.claiming.known_limiters import KnownLimiters
from tests.interleavings.program import Program, ReplyLost, Run
from tests.interleavings.scenarios.job_world import LATER, LEASE, MOST_ROUNDS, states
from tests.jobs.job_steps import Connection, advance, decided, do, session, settled, wanted
from tests.jobs.limits.lane_steps import AllLanes, Claimer


@dataclass
class LaneWorker:
    """What a worker remembers between two claims. `shares`: jobs of one key may wait here for a shared slot."""

    session: int
    slots: int = 5
    shares: bool = False
    jobs: list[ClaimedJob] = field(default_factory=list)
    holding: dict[int, list[int]] = field(default_factory=dict)
    freed: dict[int, int] = field(default_factory=dict)
    memory: KnownLimiters = field(default_factory=KnownLimiters)

    def claimed(self, known: Mapping[int, Any], result: LaneClaim) -> None:
        self.jobs += result.jobs
        self.holding |= result.holding
        self.memory.learn(known, result)
        for limiter in {*result.blocking, *result.missed}:
            self.freed.setdefault(limiter, 1)

    def ended(self, jobs: list[ClaimedJob], done: set[int]) -> None:
        for job in jobs:
            limiters = self.holding.pop(job.id, [])
            for limiter in limiters:
                self.freed[limiter] = self.freed.get(limiter, 0) + 1
            if job.id in done:
                self.memory.ended(job.id, limiters)


@dataclass
class LimitWorld:
    """`inside`: jobs that run now, by worker. `most`: how many may run at once, of all jobs together."""

    ids: list[int]
    workers: dict[str, LaneWorker]
    most: int = 1
    inside: dict[str, set[int]] = field(default_factory=dict)
    runs: list[tuple[int, int]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    def enter(self, name: str, jobs: list[ClaimedJob]) -> None:
        """Record that a worker starts jobs, and fail if more run at once than allowed."""
        self.inside.setdefault(name, set()).update(job.id for job in jobs)
        self.runs += [(job.id, job.attempt) for job in jobs]
        running = sum(map(len, self.inside.values()))
        assert not jobs or running <= self.most, f"{running} jobs run at once, {self.most} may: {self.inside}"

    def leave(self, name: str) -> None:
        self.inside.pop(name, None)


LimitProgram: TypeAlias = Callable[[LimitWorld], Program]


def workers(connection: Connection, names: str = "AB", **options: Any) -> dict[str, LaneWorker]:
    return {name: LaneWorker(session(connection, lease=LEASE), **options) for name in names}


def claims_lanes(name: str) -> LimitProgram:
    """Return a worker that opens lanes and claims once. After a lost reply it releases what it does not know of."""

    def program(world: LimitWorld) -> Program:
        worker = world.workers[name]
        yield Run(lane_claim.open_lanes(0))
        for _ in range(2):
            freed, worker.freed = worker.freed, {}
            known = worker.memory.known()
            try:
                result = yield Run(_claim(worker, freed, known), atomic=True)
            except ReplyLost:
                yield Run(transitions.release_unlisted(worker.session, [job.id for job in worker.jobs], 0.0))
                return
            worker.claimed(known, result)
            world.enter(name, result.jobs)
            if result.lacks_limiters is None:
                return
            yield Run(lane_claim.make_limiters(result.lacks_limiters, ["default"]))

    return program


def _claim(worker: LaneWorker, freed: Mapping[int, int], known: Mapping[int, Any]) -> Any:
    request = wanted(worker.slots) | {
        "now": worker.slots,
        "lanes": worker.slots,
        "bands": [{"band": band, "after": 0.0} for band in PRIORITIES],
    }
    slow: Any = () if worker.shares else AllLanes()
    return lane_claim.claim_lanes(worker.session, ("work",), [request], freed, [*PRIORITIES, FAIR_BAND], slow, known)


def settles_lanes(name: str, *, hands_over: bool = True) -> LimitProgram:
    """Return a worker that settles what it holds, and hands over the limiters that came free."""

    def program(world: LimitWorld) -> Program:
        worker = world.workers[name]
        jobs, worker.jobs = worker.jobs, []
        world.leave(name)
        if jobs:
            items = [settled(job, decided()) for job in jobs]
            try:
                done = yield Run(settlement.settle("succeed", worker.session, items))
            except ReplyLost:
                done = yield Run(settlement.settle("succeed", worker.session, items))
            worker.ended(jobs, done)
            world.done += done
        if hands_over and worker.freed:
            freed = yield Run(lane_claim.hand_over(worker.freed))
            for limiter in freed:
                worker.freed.pop(limiter, None)

    return program


def in_turn(*programs: LimitProgram) -> LimitProgram:
    def program(world: LimitWorld) -> Program:
        for each in programs:
            yield from each(world)

    return program


def all_end(connection: Connection, world: LimitWorld) -> None:
    """Recover and run all that is left, and fail if a job is lost, ran an attempt twice, or never ends."""
    runs = Counter(world.runs)
    assert not runs or max(runs.values()) == 1, f"attempts were given twice: {runs}"
    assert states(connection).keys() == set(world.ids), f"jobs are lost: {states(connection)}"
    advance(connection, LATER)
    claimer = Claimer(connection)
    for _ in range(MOST_ROUNDS):
        advance(connection, 61.0)
        do(connection, sessions.expire())
        do(connection, sessions.rescue(everywhere=True))
        do(connection, transitions.promote())
        claimer.wake()
        if got := [*claimer.claim(20).jobs, *claimer.plain()]:
            claimer.finish(got)
        if not connection.execute("select from sereno.jobs limit 1").fetchall():
            break
    final = states(connection)
    stuck = {job: state for job, state in final.items() if state not in ("succeeded", "dead", "cancelled")}
    assert not stuck, f"jobs never end: {stuck}"
    assert final.keys() == set(world.ids), f"jobs are lost: {final}"
