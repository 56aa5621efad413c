"""Random sequences of operations: no limit is exceeded, no order is broken, and no job is forgotten."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sereno import Cancel, Dead, Retry, Snooze
from sereno.jobs import pauses, transitions
from sereno.jobs.attempt import Ending, ReleasedAttempt
from sereno.jobs.job import ClaimedJob
from sereno.jobs.limits import lane_claim
from sereno.jobs.limits import store as limits
from sereno.jobs.limits.limit import Limit, Rate
from sereno.worker import sessions
from tests.facts import advance, one
from tests.jobs.job_steps import Connection, do, line
from tests.jobs.limits.lane_model import Promises, Start
from tests.jobs.limits.lane_steps import LONGEST_CHECK_INTERVAL, Claimer, keys, put, set_limit

QUEUES = ("default", "whole")
# Every third claim reverses the order of priorities: more than in a worker, so that tests end sooner.
AGEING = 3
ENDINGS: dict[str, Callable[[], Ending]] = {
    "succeeded": lambda: None,
    "retry": lambda: Retry(after=30),
    "snooze": lambda: Snooze(5),
    "release": lambda: ReleasedAttempt("shutdown"),
    "dead": lambda: Dead("no"),
    "cancelled": lambda: Cancel("no"),
}
TABLES = [
    *("jobs", "history", "attempts", "sessions", "clock", "pauses"),
    *("limits", "limiters", "lanes", "lane_queues", "lane_wakes", "shares", "weights"),
]
LIMITS: dict[str, list[Limit | Rate]] = {
    "each": [Limit(1), Limit(2), Limit(0), Limit(4)],
    "all": [Limit(3), Limit(2), Limit(6)],
    "rate": [Rate(1, per="5s", burst=2), Rate(1, per="20s"), Rate(4, per="1s", burst=5)],
    "whole": [Limit(2), Limit(1), Limit(3)],
    "whole.rate": [Rate(1, per="2s", burst=3), Rate(1, per="10s")],
}
OWN = {"whole": "whole", "whole.rate": "whole"}
ACTIONS = ["cancel", "delete", "requeue", "promote", "rescue", "pause_tenant", "weigh"]
# These wait for a stalled claim, because they change rows that it has locked.
WAITING_ACTIONS = ["sweep", "change_limit", "close_limiter", "throttle"]
ACTIONS += WAITING_ACTIONS

kinds_of_keys = st.builds(
    lambda each, shared, rated, units, fair, order, blocks: keys(
        *[("each", each)] * (each is not None),
        *[("all", "")] * shared,
        *[("rate", rated, units)] * (rated is not None),
        fair=fair,
        order=order,
        blocks=blocks and order is not None,
    ),
    each=st.sampled_from([None, None, "a", "b"]),
    shared=st.booleans(),
    rated=st.sampled_from([None, None, "x", "y"]),
    units=st.integers(1, 3),
    fair=st.sampled_from([None, None, "f", "g"]),
    order=st.sampled_from([None, None, None, "o", "p"]),
    blocks=st.booleans(),
)
# The jobs and workers to choose from depend on rates, and these on the clock. Hypothesis needs the same choices
# whenever it repeats the same steps, so it only draws a number.
random_numbers = st.integers(0, 2**32 - 1).map(Random)


class Lanes(RuleBasedStateMachine):
    """Four workers, one of which may stall in the middle of a claim."""

    connection: Connection
    lines: tuple[Connection, ...]

    def __init__(self) -> None:
        super().__init__()
        for table in TABLES:
            self.connection.execute(f"delete from sereno.{table}".encode())
        self.promises = Promises(own={"whole": ["whole", "whole.rate"]})
        self.claims: list[tuple[Claimer, ClaimedJob]] = []
        self.open: dict[int, Start] = {}
        self.open_claim: list[tuple[Claimer, ClaimedJob]] = []
        self.alive: set[int] = set()
        # By job, its slot group and the number of slots.
        self.slot_groups: dict[int, tuple[object, int]] = {}
        self.made: set[int] = set()
        for name, choices in LIMITS.items():
            self.change(name, choices[0])
        self.stalled = self.start(self.lines[0], "default")
        self.claimers = [self.stalled, *(self.start(self.lines[1], queue) for queue in ("default", *QUEUES))]

    def start(self, connection: Connection, queue: str) -> Claimer:
        made = Claimer(connection, queue=queue, slot_groups=True)
        self.alive.add(made.session)
        return made

    def change(self, name: str, limit: Limit | Rate) -> None:
        set_limit(self.connection, name, limit, queue=OWN.get(name))
        self.promises.set(name, limit)

    # Actions of callers.

    @initialize(of=kinds_of_keys, more=kinds_of_keys)
    def begin(self, of: dict[str, Any], more: dict[str, Any]) -> None:
        self.made |= {*put(self.connection, of, 4), *put(self.connection, more, 4)}

    @rule(
        of=kinds_of_keys,
        count=st.integers(1, 4),
        queue=st.sampled_from(["default", "default", "whole"]),
        priority=st.sampled_from([5, 5, 0, 9]),
        delay=st.sampled_from([0, 0, 30]),
        tenant=st.sampled_from([None, "t"]),
    )
    def enqueue(
        self, of: dict[str, Any], count: int, queue: str, priority: int, delay: int, tenant: str | None
    ) -> None:
        options: dict[str, Any] = {"queue": queue, "priority": priority, "delay": delay, "tenant": tenant}
        self.made |= set(put(self.connection, of, count, **options))

    # Actions of workers.

    @rule(which=st.integers(0, 3), free_slots=st.integers(1, 6), now=st.integers(0, 6), turned=st.booleans())
    def claim(self, which: int, free_slots: int, now: int, turned: bool) -> None:
        claimer = self.claimers[which]
        if claimer is self.stalled and self.open_claim:
            return
        claimer.wake()
        self.checked_claim(claimer, free_slots, min(now, free_slots), turned=turned)

    @rule(free_slots=st.integers(1, 6))
    def claim_and_stall(self, free_slots: int) -> None:
        """Leave the transaction of a claim open for a while."""
        if self.open_claim:
            return
        self.stalled.wake()
        self.stalled.connection.execute("begin")
        self.open_claim = self.checked_claim(self.stalled, free_slots, free_slots, stays_open=True)
        if not self.open_claim:
            self.stalled.connection.execute("rollback")

    @rule(how=st.sampled_from(["commit", "rollback"]))
    def end_stalled_claim(self, how: str) -> None:
        if not self.open_claim:
            return
        self.stalled.connection.execute(how.encode())
        if how == "commit":
            self.promises.count(list(self.open.values()))
            self.claims += self.open_claim
        else:
            self.stalled.left([job.id for _, job in self.open_claim])
        self.open, self.open_claim = {}, []

    def checked_claim(
        self, claimer: Claimer, free_slots: int, now: int, *, turned: bool = False, stays_open: bool = False
    ) -> list[tuple[Claimer, ClaimedJob]]:
        got = claimer.claim(free_slots, now=now, turned=turned)
        started = list(self.rows(claimer.connection, [job.id for job in got.jobs]))
        assert len(got.jobs) <= free_slots
        assert not got.jobs or claimer.session in self.alive
        if stays_open:
            self.open = {start.id: start for start in started}
        for job in got.jobs:
            self.slot_groups.pop(job.id, None)
        for _, slots, members in got.slot_groups:
            self.slot_groups.update(dict.fromkeys([job.id for job in members], (object(), slots)))
        self.promises.check(started, [*self.at_once()])
        assert sum(map(self.promises.is_rated, started)) <= now, "a job under a rate starts at once"
        for start in started:
            self.assert_is_head(claimer.connection, start)
        claimed = [(claimer, job) for job in got.jobs]
        if not stays_open:
            self.promises.count(started)
            self.claims += claimed
        return claimed

    def at_once(self) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """Return queue and keys of the jobs that may run at once: of a slot group, as many as it has slots."""
        rows = self.connection.execute("select id, queue, keys from sereno.jobs where state = 'running'").fetchall()
        rows += [(start.id, start.queue, start.keys) for start in self.open.values()]
        seen: Counter[object] = Counter()
        for job, queue, carried in rows:
            slot_group, slots = self.slot_groups.get(job, (job, 1))
            seen[slot_group] += 1
            if seen[slot_group] <= slots:
                yield queue, carried

    def rows(self, connection: Connection, ids: list[int]) -> Iterator[Start]:
        for row in connection.execute(
            "select id, queue, keys, tenant, extract(epoch from claimed_at)::float from sereno.jobs "
            "where id = any(%s) and state = 'running'",
            [ids],
        ):
            yield Start(*row)

    def assert_is_head(self, connection: Connection, start: Start) -> None:
        if not start.keys or "order" not in start.keys:
            return
        order = [start.queue, start.keys["order"]]
        earlier = one(
            connection,
            "select count(*) from sereno.jobs where queue = %s and keys ->> 'order' = %s and id < %s",
            *order,
            start.id,
        )
        assert earlier == 0, "it overtook another job of its order"
        blocked = one(
            connection,
            "select count(*) from sereno.history where state = 'dead' and keys ? 'blocks' "
            "and queue = %s and keys ->> 'order' = %s",
            *order,
        )
        assert blocked == 0, "a dead letter blocks it"

    def claim_plain(self, rng: Random, which: int) -> None:
        """Claim jobs without limits, from a queue without limits."""
        claimer = self.claimers[which]
        got = claimer.plain(rng.randint(1, 4))
        for start in self.rows(self.connection, [job.id for job in got]):
            assert (start.queue, start.keys) == ("default", None)
            assert start.tenant not in self.promises.paused
        self.claims += [(claimer, job) for job in got]

    @rule(rng=random_numbers, outcome=st.sampled_from(sorted(ENDINGS)), remembers=st.booleans())
    def settle(self, rng: Random, outcome: str, remembers: bool) -> None:
        """Settle any recent claim: those that were lost meanwhile change nothing."""
        if not self.claims:
            return
        claimer, job = rng.choice(self.claims[-8:])
        if claimer is self.stalled and self.open_claim:
            return
        claimer.finish([job], ENDINGS[outcome]())
        if not remembers:
            claimer.freed.clear()

    @rule(rng=random_numbers, action=st.sampled_from(["hand_over", "reply_was_lost", "die", "claim_plain"]))
    def fault(self, rng: Random, action: str) -> None:
        getattr(self, action)(rng, rng.choice([1, 2, 3]))

    def hand_over(self, _: Random, which: int) -> None:
        claimer = self.claimers[which]
        for limiter in do(self.connection, lane_claim.hand_over(claimer.freed)):
            claimer.freed.pop(limiter, None)

    def reply_was_lost(self, _: Random, which: int) -> None:
        """Lose the reply to a claim: the worker releases the jobs that it does not know of."""
        do(self.connection, transitions.release_unlisted(self.claimers[which].session, [], 0))

    def die(self, rng: Random, which: int) -> None:
        dead = self.claimers[which]
        how: Literal["dead", "closed"] = rng.choice(["dead", "closed"])
        do(self.connection, sessions.finish([dead.session], how))
        self.alive.discard(dead.session)
        if rng.choice([False, True]):
            do(self.connection, sessions.rescue(everywhere=True))
        self.claimers[which] = self.start(self.lines[1], dead.queue)

    # Actions of operators, and time.

    @rule(rng=random_numbers, action=st.sampled_from(ACTIONS))
    def operate(self, rng: Random, action: str) -> None:
        if not (self.open_claim and action in WAITING_ACTIONS):
            getattr(self, action)(rng)

    def random_job(self, rng: Random) -> int:
        return rng.choice(sorted(self.made - self.open.keys()) or [0])

    def cancel(self, rng: Random) -> None:
        do(self.connection, transitions.cancel([self.random_job(rng)], "operator"))

    def delete(self, rng: Random) -> None:
        self.made -= set(do(self.connection, transitions.delete([self.random_job(rng)])))

    def requeue(self, rng: Random) -> None:
        do(self.connection, transitions.requeue([self.random_job(rng)]))

    def promote(self, _: Random) -> None:
        do(self.connection, transitions.promote())

    def rescue(self, _: Random) -> None:
        do(self.connection, sessions.rescue(everywhere=True))

    @rule(seconds=st.sampled_from([0.3, 1, 6, 31, 61, 4000]), promotes=st.booleans())
    def time_passes(self, seconds: float, promotes: bool) -> None:
        advance(self.connection, seconds)
        if promotes:
            do(self.connection, transitions.promote())

    def sweep(self, _: Random) -> None:
        for sweep in (limits.sweep_lanes, limits.sweep_limiters, limits.sweep_shares):
            do(self.connection, sweep())

    def change_limit(self, rng: Random) -> None:
        name = rng.choice(sorted(LIMITS))
        self.change(name, rng.choice(LIMITS[name]))

    def close_limiter(self, rng: Random) -> None:
        limiter = rng.choice([("each", "a"), ("all", ""), ("rate", "x"), ("whole", "")])
        if rng.choice([False, True]):
            do(self.connection, limits.reopen(*limiter))
            self.promises.closed.pop(limiter, None)
        elif until := do(self.connection, limits.close(*limiter, 40)):
            self.promises.closed[limiter] = until.timestamp()

    def throttle(self, rng: Random) -> None:
        if not self.claims:
            return
        claimer, job = rng.choice(self.claims[-8:])
        before = one(self.connection, "select extract(epoch from sereno.now())::float")
        for limiter in do(self.connection, limits.throttle(claimer.session, job.id, job.attempt, 20)):
            self.promises.closed[limiter] = max(before + 20, self.promises.closed.get(limiter, 0.0))

    def pause_tenant(self, rng: Random) -> None:
        if rng.choice([False, True]):
            do(self.connection, pauses.pause("tenant", "t", actor="me"))
            self.promises.paused = {"t"}
        else:
            self.resume_tenant()

    def resume_tenant(self) -> None:
        do(self.connection, pauses.resume("tenant", "t"))
        self.promises.paused = set()

    def weigh(self, rng: Random) -> None:
        do(self.connection, limits.weigh(rng.choice("fg"), rng.choice([0.5, 4]), "me"))

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        found = self.connection.execute("select id from sereno.jobs union all select id from sereno.history")
        assert sorted(row[0] for row in found) == sorted(self.made)

    def teardown(self) -> None:
        """Check that no job is forgotten: a new worker runs all that can run."""
        try:
            if self.open_claim:
                self.end_stalled_claim("rollback")
            self.everything_ends()
        finally:
            self.stalled.connection.rollback()

    def everything_ends(self) -> None:
        do(self.connection, sessions.finish([claimer.session for claimer in self.claimers], "closed"))
        do(self.connection, sessions.rescue(everywhere=True))
        self.resume_tenant()
        if self.promises.slots["each"] == 0:
            self.change("each", Limit(1))
        blocking = self.connection.execute("select id from sereno.history where keys ? 'blocks' and state = 'dead'")
        self.made -= set(do(self.connection, transitions.delete([row[0] for row in blocking.fetchall()])))
        self.claimers = [self.start(self.connection, queue) for queue in QUEUES]
        for number in range(4 * len(self.made) + 40):
            advance(self.connection, LONGEST_CHECK_INTERVAL + 1)
            do(self.connection, transitions.promote())
            for claimer in self.claimers:
                claimer.wake()
                got = [job for _, job in self.checked_claim(claimer, 6, 6, turned=number % AGEING == 0)]
                got += claimer.plain(6)
                if got:
                    claimer.finish(got)
            if one(self.connection, "select count(*) from sereno.jobs") == 0:
                break
        left = self.connection.execute("select id, state, queue, keys, lane, order_id from sereno.jobs").fetchall()
        assert left == [], f"forgotten: {left}; {self.connection.execute('select * from sereno.lanes').fetchall()}"
        self.every_job_is_in_one_place()


@pytest.mark.parametrize(
    "examples",
    [
        8,
        pytest.param(25, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param(1500, marks=[pytest.mark.storm, pytest.mark.timeout(3600)]),
    ],
)
def test_limits_hold_and_no_job_is_forgotten(database_url: str, examples: int) -> None:
    with ExitStack() as stack:
        Lanes.connection = stack.enter_context(line(database_url))
        Lanes.lines = (stack.enter_context(line(database_url)), stack.enter_context(line(database_url)))
        for opened in (Lanes.connection, *Lanes.lines):
            # Without it, a step that waits for the stalled claim would wait forever.
            opened.execute("set lock_timeout = '5s'")
        run_state_machine_as_test(
            Lanes,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                database=None,
                # Report a failure without shrinking, which would take minutes of SQL.
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
