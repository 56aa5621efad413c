"""Random sequences of operations: the store matches the reference model, and no transition is illegal."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from sereno import Cancel, Dead, Retry, Snooze
from sereno.jobs import transitions
from sereno.jobs.attempt import CrashedAttempt, Ending, ReleasedAttempt, Settlement
from sereno.jobs.job import ClaimedJob
from sereno.jobs.lifecycle import is_legal
from sereno.worker import sessions
from tests.jobs.job_steps import Connection, advance, decided, do, end, line, new, session, take
from tests.jobs.model import Model

TICK = 1000
LEASE = 1500.0
ENDINGS: dict[str, Callable[[], Ending]] = {
    "succeeded": lambda: None,
    "retry": lambda: Retry(after=TICK),
    "snooze": lambda: Snooze(TICK),
    "release": lambda: ReleasedAttempt("shutdown"),
    "crash": lambda: CrashedAttempt("killed"),
    "dead": lambda: Dead("no"),
    "cancelled": lambda: Cancel("no"),
}
TABLES = ("jobs", "history", "attempts", "unique_keys", "sessions", "clock")
COLUMNS = "id, state, attempt, failures, crashes, snoozes, releases, session_id, unique_key"


def settlement_of(outcome: str) -> Settlement:
    decision = decided(ENDINGS[outcome]())
    if outcome == "crash":
        decision.delay = TICK
    return decision


class JobStore(RuleBasedStateMachine):
    connection: Connection

    def __init__(self) -> None:
        super().__init__()
        for table in TABLES:
            self.connection.execute(f"delete from sereno.{table}".encode())
        self.model = Model()
        self.claims: list[tuple[int, ClaimedJob]] = []
        self.before: dict[int, str] = {}

    @rule(delay=st.sampled_from([0, TICK]), key=st.sampled_from([None, "a", "b"]), replacing=st.booleans())
    def enqueue(self, delay: int, key: str | None, replacing: bool) -> None:
        options = {"unique_key": key, "on_conflict": "replace"} if key and replacing else {"unique_key": key}
        (job,) = do(self.connection, transitions.enqueue([new(delay=delay, **options)]))
        assert job.created == self.model.enqueue(job.id, delay, key, replacing=replacing)

    @rule()
    def start_session(self) -> None:
        self.model.sessions[session(self.connection, lease=LEASE)] = ("alive", self.model.now + int(LEASE))

    @precondition(lambda self: self.model.sessions)
    @rule(data=st.data(), free_slots=st.integers(1, 3))
    def claim(self, data: st.DataObject, free_slots: int) -> None:
        owner = data.draw(st.sampled_from(sorted(self.model.sessions)))
        got = take(self.connection, owner, free_slots)
        ready = len(self.model.of_state("ready")) if self.model.may_claim(owner) else 0
        assert len(got) == min(free_slots, ready)
        for job in got:
            self.model.claim(job.id, owner)
            assert job.attempt == self.model.jobs[job.id].attempt
            self.claims.append((owner, job))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), outcome=st.sampled_from(sorted(ENDINGS)))
    def settle(self, data: st.DataObject, outcome: str) -> None:
        """Settle any earlier claim: most old ones are fenced out."""
        owner, job = data.draw(st.sampled_from(self.claims[-6:]))
        is_held = self.model.holds(job.id, job.attempt, owner)
        assert end(self.connection, owner, [job], settlement_of(outcome)) == ({job.id} if is_held else set())
        if is_held:
            self.model.settle(job.id, outcome, TICK)

    @precondition(lambda self: self.model.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.model.jobs)))
        do(self.connection, transitions.cancel([id_], "operator"))
        self.model.cancel(id_)

    @precondition(lambda self: self.model.of_state("succeeded", "dead", "cancelled"))
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(sorted(self.model.jobs)))
        assert do(self.connection, transitions.requeue([id_])) == ([id_] if self.model.requeue(id_) else [])

    @rule()
    def rescue(self) -> None:
        do(self.connection, sessions.expire())
        self.model.expire()
        assert set(do(self.connection, sessions.rescue(everywhere=True))) == self.model.rescue()

    @precondition(lambda self: self.model.sessions)
    @rule(data=st.data())
    def close_session(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(sorted(self.model.sessions)))
        do(self.connection, sessions.finish([owner], "closed"))
        state, lease = self.model.sessions[owner]
        self.model.sessions[owner] = ("closed" if state == "alive" else state, lease)

    @rule()
    def promote(self) -> None:
        assert do(self.connection, transitions.promote()) == len(self.model.promote())

    @rule()
    def time_passes(self) -> None:
        advance(self.connection, TICK)
        self.model.now += TICK

    @invariant()
    def database_matches_the_model(self) -> None:
        found = self.connection.execute(
            f"select {COLUMNS} from sereno.jobs union all select {COLUMNS} from sereno.history".encode()
        ).fetchall()
        after = {row[0]: row[1:] for row in found}
        assert len(after) == len(found), "a job is in two tables"
        for id_, job in self.model.jobs.items():
            owner = None if job.state == "cancelled" else after[id_][6]
            assert (*after[id_][:6], owner, after[id_][7]) == job.compared
        assert after.keys() == self.model.jobs.keys()
        for id_, row in after.items():
            previous = self.before.get(id_, row[0])
            assert previous == row[0] or is_legal(previous, row[0]), f"{previous} -> {row[0]}"
        self.before = {id_: row[0] for id_, row in after.items()}


@pytest.mark.parametrize(
    "examples",
    [
        15,
        pytest.param(80, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param(2000, marks=[pytest.mark.storm, pytest.mark.timeout(3600)]),
    ],
)
def test_the_store_matches_the_reference_model(database_url: str, examples: int) -> None:
    with line(database_url) as opened:
        JobStore.connection = opened
        run_state_machine_as_test(
            JobStore,
            settings=settings(
                max_examples=examples,
                stateful_step_count=50,
                deadline=None,
                database=None,
                # Report a failure without shrinking, which would take minutes of SQL.
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
