"""Compares the journals with the database after a storm. Pure: each check yields what contradicts a promise."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import islice, pairwise

from sereno.schedules.firing import COUNTED
from tests.faults.handler_log import excess, peak
from tests.faults.rhythms import POLICIES
from tests.storm import workflow_judge
from tests.storm.evidence import EndedJob, Evidence, Fire, PlannedInstants, Run

# Findings of one check that are reported.
MOST = 20
# Seconds. Times are rounded floating-point numbers.
ROUNDED = 0.001
# A scheduler counts missed instants up to COUNTED; with missed="all" some of them are fires of their own.
MOST_COUNTED = COUNTED - max(policy.get("missed_limit", 0) for policy in POLICIES)
# Tasks of sereno itself write no journal.
INTERNAL = "sereno."


class LimitRules:
    """The limits of the tasks. `slots`: by task, for each key. `queues`: tasks that share slots. `rates`: by task."""

    def __init__(
        self,
        slots: dict[str, int],
        queues: dict[tuple[str, ...], int],
        rates: dict[str, tuple[float, float]],
        ordered: set[str],
        transactional: set[str],
    ) -> None:
        self.slots = slots
        self.queues = queues
        self.rates = rates
        self.ordered = ordered
        self.transactional = transactional


class Judge:
    """Checks the evidence of one storm against the rules of its tasks."""

    def __init__(self, evidence: Evidence, rules: LimitRules) -> None:
        self._evidence = evidence
        self._rules = rules

    def findings(self) -> list[str]:
        """Return everything that is wrong, at most `MOST` of each check."""
        checks: tuple[Callable[[], Iterator[str]], ...] = (
            self._all_ended_once,
            self._accepted_are_done,
            self._succeeded_were_executed,
            self._attempts_are_recorded,
            self._effects_once,
            self._no_early_retry,
            self._one_attempt_at_a_time,
            self._finished_steps_are_not_repeated,
            self._fires_once,
            self._no_missing_fire,
            self._limits_held,
            self._rates_held,
            self._orders_held,
            self._deliveries_accounted,
            self._invariants_hold,
        )
        findings = [f"{_name(check)}: {found}" for check in checks for found in islice(check(), MOST)]
        for each in workflow_judge.CHECKS:
            findings += [f"{_name(each)}: {found}" for found in islice(each(self._evidence), MOST)]
        return findings

    # What several checks use

    @cached_property
    def _ended(self) -> dict[int, EndedJob]:
        return {job.id: job for job in self._evidence.state.ended}

    @cached_property
    def _outcomes(self) -> dict[tuple[int, int], str]:
        """Return the outcomes of all attempts but the last ones, as the database recorded them."""
        return {(job, number): outcome for job, number, outcome in self._evidence.state.attempts}

    @cached_property
    def _runs(self) -> dict[int, list[Run]]:
        """Return the runs of each job in the order of their attempts."""
        found: dict[int, list[Run]] = defaultdict(list)
        for run in sorted(self._evidence.runs, key=lambda run: (run.job, run.attempt)):
            found[run.job].append(run)
        return found

    @cached_property
    def _freezes(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for freeze in self._evidence.freezes:
            for pid in freeze.pids:
                found[pid].append(freeze.at)
        return found

    def _held(self, run: Run) -> "_Interval":
        """Return when a run held its slot: a process that was frozen past its lease held none afterwards."""
        end = run.end
        if self._outcomes.get((run.job, run.attempt)) in ("crash", "release"):
            end = min([end, *(at for at in self._freezes.get(run.pid, ()) if run.begin <= at)])
        return _Interval(run, run.begin, end)

    def _ahead(self, wall: float) -> float:
        """Return how far the clock of the database was ahead at least."""
        return sum(jump.seconds for jump in self._evidence.jumps if jump.after <= wall)

    # Jobs

    def _all_ended_once(self) -> Iterator[str]:
        state = self._evidence.state
        if state.live:
            yield f"{state.live} jobs have not ended"
        for number, count in Counter(job.id for job in state.ended).items():
            if count > 1:
                yield f"job {number} is stored {count} times"
        for job in state.ended:
            if job.state == "dead":
                yield f"job {job.id} ({job.task}) is dead"

    def _accepted_are_done(self) -> Iterator[str]:
        cancelled = {cancel.tenant for cancel in self._evidence.cancels}
        for accepted in self._evidence.accepted:
            wanted = "cancelled" if accepted.tenant in cancelled else "succeeded"
            found = self._ended.get(accepted.job)
            if found is None:
                yield f"job {accepted.job} ({accepted.task}) was accepted and is lost"
            elif found.state != wanted:
                yield f"job {accepted.job} ({accepted.task}) is {found.state}, not {wanted}"
            elif wanted == "cancelled" and accepted.job in self._runs:
                yield f"job {accepted.job} ({accepted.task}) was cancelled before its time and ran"

    def _succeeded_were_executed(self) -> Iterator[str]:
        for job in self._evidence.state.ended:
            if job.state != "succeeded" or job.task.startswith(INTERNAL):
                continue
            last = [run for run in self._runs.get(job.id, ()) if run.attempt == job.attempt]
            if not last:
                yield f"job {job.id} ({job.task}) succeeded in attempt {job.attempt}, which never ran"
            elif job.task not in self._rules.transactional and last[-1].outcome != "ok":
                yield f"job {job.id} ({job.task}) succeeded in attempt {job.attempt}, which ended: {last[-1].outcome}"

    def _attempts_are_recorded(self) -> Iterator[str]:
        for (job, attempt), count in Counter((run.job, run.attempt) for run in self._evidence.runs).items():
            if count > 1:
                yield f"attempt {attempt} of job {job} ran {count} times"
        for run in self._evidence.runs:
            found = self._ended.get(run.job)
            if found is None:
                yield f"job {run.job} ({run.task}) ran and is not stored"
            elif found.attempt != run.attempt and (run.job, run.attempt) not in self._outcomes:
                yield f"attempt {run.attempt} of job {run.job} ({run.task}) ran and is not stored"

    def _effects_once(self) -> Iterator[str]:
        effects = Counter(self._evidence.state.effects)
        for job in self._evidence.state.ended:
            if job.task in self._rules.transactional and job.state == "succeeded" and effects[job.id] != 1:
                yield f"job {job.id} has {effects[job.id]} effects"
        for number in effects:
            found = self._ended.get(number)
            if found is None or found.state != "succeeded":
                yield f"job {number} has an effect and has not succeeded"

    def _no_early_retry(self) -> Iterator[str]:
        for runs in self._runs.values():
            for run, following in pairwise(runs):
                if run.outcome != "retry" or self._outcomes.get((run.job, run.attempt)) not in ("retry", "snooze"):
                    continue
                due = run.ended_wall + self._ahead(run.ended_wall) + run.delay
                if following.claimed < due - ROUNDED:
                    early = due - following.claimed
                    yield f"attempt {following.attempt} of job {run.job} ({run.task}) began {early:.3f} s early"

    def _one_attempt_at_a_time(self) -> Iterator[str]:
        for runs in self._runs.values():
            for run, following in pairwise(runs):
                over = self._held(run).end - following.begin
                if over > 0:
                    yield f"{_words(run)} still ran for {over / 1e6:.1f} ms when {_words(following)} began"

    def _finished_steps_are_not_repeated(self) -> Iterator[str]:
        """A step is stored before the next one runs, so an attempt after that never runs it again."""
        furthest: dict[int, tuple[int, int]] = {}
        for step in sorted(self._evidence.steps, key=lambda step: (step.job, step.attempt, step.number)):
            number, attempt = furthest.get(step.job, (-1, 0))
            if step.attempt > attempt and step.number < number:
                yield f"job {step.job}: step {step.number} ran in attempt {step.attempt}, step {number} in {attempt}"
            if step.number > number:
                furthest[step.job] = step.number, step.attempt

    # Schedules

    def _fires_once(self) -> Iterator[str]:
        fired: dict[tuple[int, str], set[int]] = defaultdict(set)
        for run in self._evidence.runs:
            if run.fire is not None:
                fired[run.fire].add(run.job)
        for (schedule, at), jobs in fired.items():
            if len(jobs) > 1:
                yield f"schedule {schedule} fired twice at {at}: jobs {sorted(jobs)}"
        for (schedule, instant), count in Counter((f.schedule, f.at) for f in self._evidence.state.fires).items():
            if count > 1:
                yield f"schedule {schedule} has {count} fires at {instant.isoformat()}"

    def _no_missing_fire(self) -> Iterator[str]:
        state = self._evidence.state
        fires: dict[int, list[Fire]] = defaultdict(list)
        for fire in state.fires:
            # Some schedules of sereno itself keep no history.
            if fire.schedule not in state.schedules:
                continue
            fires[fire.schedule].append(fire)
            found = None if fire.job is None else self._ended.get(fire.job)
            if fire.job is not None and found is None:
                yield f"job {fire.job} of schedule {fire.schedule} at {fire.at.isoformat()} is lost"
            elif found is not None and found.state == "succeeded":
                ran = {run.fire and (run.fire[0], datetime.fromisoformat(run.fire[1])) for run in self._runs[found.id]}
                if ran != {(fire.schedule, fire.at)}:
                    yield f"job {fire.job} ran for {ran}, not for schedule {fire.schedule} at {fire.at.isoformat()}"
        for number, planned in state.schedules.items():
            yield from _gaps(planned, sorted(fires[number], key=lambda fire: fire.at))

    # Limits

    def _by_key(self, tasks: Iterable[str]) -> dict[tuple[str, str], list["_Interval"]]:
        found: dict[tuple[str, str], list[_Interval]] = defaultdict(list)
        wanted = set(tasks)
        for run in self._evidence.runs:
            if run.task in wanted:
                found[run.task, run.key].append(self._held(run))
        return found

    def _limits_held(self) -> Iterator[str]:
        for (task, key), intervals in self._by_key(self._rules.slots).items():
            most = peak(intervals)
            if most > self._rules.slots[task]:
                yield f"{most} jobs of {task} {key!r} ran at once, not {self._rules.slots[task]}: {_crowd(intervals)}"
        for tasks, slots in self._rules.queues.items():
            intervals = [each for group in self._by_key(tasks).values() for each in group]
            most = peak(intervals)
            if most > slots:
                yield f"{most} jobs of {', '.join(tasks)} ran at once, not {slots}: {_crowd(intervals)}"

    def _rates_held(self) -> Iterator[str]:
        for task, (per_second, burst) in self._rules.rates.items():
            early = excess((run.claimed for run in self._evidence.runs if run.task == task), per_second, burst)
            if early > ROUNDED:
                yield f"jobs of {task} were claimed {early:.3f} s too early"

    def _orders_held(self) -> Iterator[str]:
        """Only accepted jobs: a job whose commit was not acknowledged may have been committed after later ones."""
        accepted = {accepted.job for accepted in self._evidence.accepted}
        for (task, key), intervals in self._by_key(self._rules.ordered).items():
            known = [each for each in intervals if each.run.job in accepted]
            for first, second in pairwise(known):
                if second.begin < first.end:
                    yield f"{task} {key!r}: {_words(first.run)} still ran when {_words(second.run)} began"
                if second.run.job < first.run.job:
                    yield f"{task} {key!r}: {_words(second.run)} began after {_words(first.run)}"

    # Notifications and invariants

    def _deliveries_accounted(self) -> Iterator[str]:
        state = self._evidence.state
        of_event = Counter(delivery.event for delivery in state.deliveries)
        for accepted in self._evidence.events:
            if of_event[accepted.event] != state.recipients:
                yield f"event {accepted.event} has {of_event[accepted.event]} deliveries, not {state.recipients}"
        for delivery in state.deliveries:
            if delivery.state in ("pending", "sending"):
                yield f"delivery {delivery.id} is still {delivery.state}"
            yield from self._evidence.provider.faults(delivery.id, delivery.state, delivery.unknowns)
        known = {delivery.id for delivery in state.deliveries}
        for unknown in self._evidence.provider.calls.keys() - known:
            yield f"the provider received delivery {unknown}, which is not stored"

    def _invariants_hold(self) -> Iterator[str]:
        yield from self._evidence.state.violations


class _Interval:
    """A run, and the time in which it held its slot."""

    __slots__ = ("begin", "end", "run")

    def __init__(self, run: Run, begin: int, end: int) -> None:
        self.run = run
        self.begin = begin
        self.end = max(begin, end)


def _gaps(planned: PlannedInstants, fires: list[Fire]) -> Iterator[str]:
    """Yield instants that no fire stands for, and instants that two stand for."""
    if not fires:
        yield f"schedule {planned.key!r} never fired"
        return
    before = planned.first.timestamp() - planned.step
    for fire in fires:
        missing = fire.at.timestamp() - before - fire.stands_for * planned.step
        if missing > 0 and fire.stands_for >= MOST_COUNTED:
            missing = 0.0
        if abs(missing) > ROUNDED:
            what = "missing" if missing > 0 else "covered twice"
            yield f"schedule {planned.key!r}: {abs(missing):.3f} s before {fire.at.isoformat()} are {what}"
        before = fire.at.timestamp()
    if planned.last is not None and fires[-1].at != planned.last:
        yield f"schedule {planned.key!r}: {planned.last.isoformat()} was planned and has no fire"


def _crowd(intervals: list[_Interval]) -> str:
    """Return the runs at the moment when most were under way."""
    begins = sorted(each.begin for each in intervals)
    ends = sorted(each.end for each in intervals)
    moment = max(begins, key=lambda at: bisect_right(begins, at) - bisect_right(ends, at))
    return "; ".join(_words(each.run) for each in intervals if each.begin <= moment < each.end)


def _words(run: Run) -> str:
    ended = "was killed" if run.was_killed else run.outcome or "vanished"
    return f"attempt {run.attempt} of job {run.job} (process {run.pid} of {run.worker}, {ended})"


def _name(check: Callable[..., object]) -> str:
    return getattr(check, "__name__", "").strip("_").replace("_", " ")
