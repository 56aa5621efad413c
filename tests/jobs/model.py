"""A reference model of the store in plain Python, to compare the SQL with."""

from dataclasses import dataclass, field, replace

LIVE = ("scheduled", "ready", "running")
COUNTER = {"retry": "failures", "crash": "crashes", "snooze": "snoozes", "release": "releases"}


@dataclass(frozen=True)
class ModelJob:
    state: str
    due: int
    key: str | None = None
    session: int | None = None
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    snoozes: int = 0
    releases: int = 0
    cancel_requested: bool = False

    @property
    def compared(self) -> tuple[object, ...]:
        """Return the fields that are compared with the database."""
        owner = self.session if self.state in ("running", "succeeded", "dead") else None
        return (self.state, self.attempt, self.failures, self.crashes, self.snoozes, self.releases, owner, self.key)


@dataclass
class Model:
    now: int = 0
    jobs: dict[int, ModelJob] = field(default_factory=dict)
    # State and lease end of each session.
    sessions: dict[int, tuple[str, int]] = field(default_factory=dict)

    def live(self, key: str | None) -> int | None:
        """Return the live job with this key."""
        holders = [id_ for id_, job in self.jobs.items() if key is not None and job.key == key and job.state in LIVE]
        assert len(holders) <= 1
        return holders[0] if holders else None

    def of_state(self, *states: str) -> set[int]:
        return {id_ for id_, job in self.jobs.items() if job.state in states}

    def waiting(self, due: int) -> str:
        return "ready" if due <= self.now else "scheduled"

    def enqueue(self, id_: int, delay: int, key: str | None, *, replacing: bool) -> bool:
        """Return whether this creates a job; a kept or replaced one must hold the key."""
        due = self.now + delay
        holder = self.live(key)
        if holder is None:
            self.jobs[id_] = ModelJob(self.waiting(due), due, key)
            return True
        assert id_ == holder
        if replacing and self.jobs[holder].state != "running":
            self.jobs[holder] = replace(self.jobs[holder], due=due, state=self.waiting(due))
        return False

    def may_claim(self, session: int) -> bool:
        state, lease = self.sessions[session]
        return state == "alive" and lease > self.now

    def claim(self, id_: int, session: int) -> None:
        job = self.jobs[id_]
        assert job.state == "ready"
        self.jobs[id_] = replace(job, state="running", session=session, attempt=job.attempt + 1)

    def holds(self, id_: int, attempt: int, session: int) -> bool:
        job = self.jobs.get(id_)
        return job is not None and (job.state, job.attempt, job.session) == ("running", attempt, session)

    def settle(self, id_: int, outcome: str, delay: int) -> None:
        job = self.jobs[id_]
        if outcome in COUNTER:
            counter = COUNTER[outcome]
            due = job.due if outcome == "release" else self.now + delay
            state = "cancelled" if job.cancel_requested else self.waiting(due)
            count = {counter: getattr(job, counter) + 1}
            self.jobs[id_] = replace(job, state=state, due=due, cancel_requested=False, **count)
        else:
            failures = job.failures + (outcome == "dead")
            self.jobs[id_] = replace(job, state=outcome, failures=failures, cancel_requested=False)

    def cancel(self, id_: int) -> None:
        job = self.jobs[id_]
        if job.state == "running":
            self.jobs[id_] = replace(job, cancel_requested=True)
        elif job.state in LIVE:
            self.jobs[id_] = replace(job, state="cancelled", cancel_requested=False)

    def requeue(self, id_: int) -> bool:
        job = self.jobs[id_]
        if job.state in LIVE or self.live(job.key) is not None:
            return False
        self.jobs[id_] = replace(job, state="ready", due=self.now, failures=0, crashes=0, cancel_requested=False)
        return True

    def expire(self) -> None:
        for id_, (state, lease) in self.sessions.items():
            if state == "alive" and lease < self.now:
                self.sessions[id_] = ("dead", lease)

    def rescue(self) -> set[int]:
        lost = {id_ for id_ in self.of_state("running") if self.sessions[self.jobs[id_].session or 0][0] != "alive"}
        for id_ in lost:
            job = self.jobs[id_]
            crashed = self.sessions[job.session or 0][0] == "dead"
            crashes = max(1, job.crashes) if crashed else job.crashes
            self.jobs[id_] = replace(job, state="ready", crashes=crashes, releases=job.releases + (not crashed))
        return lost

    def promote(self) -> set[int]:
        due = {id_ for id_ in self.of_state("scheduled") if self.jobs[id_].due <= self.now}
        for id_ in due:
            self.jobs[id_] = replace(self.jobs[id_], state="ready")
        return due
