"""What follows from the ending of an attempt: its settlement is decided, counted, logged and given to the settler."""

import random
from collections.abc import Callable
from typing import Protocol

from sereno.error_text import describe
from sereno.jobs.attempt import SUCCEEDED, Ending, Settlement, Throttle, settlement
from sereno.jobs.encrypted_arguments import EncryptedArguments
from sereno.jobs.fingerprint import failure
from sereno.jobs.job import ClaimedJob
from sereno.jobs.settlement import SettleResult
from sereno.jobs.task import TaskDefinition
from sereno.telemetry.metrics import AttemptBuffer, MetricTally
from sereno.worker.attempt_log import logs_successes, report, report_after_success
from sereno.worker.hooks import HookCaller
from sereno.worker.isolation.pool import SETTLED_ELSEWHERE, runs_alone
from sereno.worker.iteration import continued
from sereno.worker.running_call import RunningCall


class OutcomeWriter(Protocol):
    """What stores outcomes: the settler, or what takes those of carried jobs."""

    hooks: HookCaller | None

    def add(self, item: SettleResult, *, at_once: bool = False) -> None: ...

    def confirm(self, job: ClaimedJob) -> None: ...

    def throttle(self, job_id: int, attempt: int, wanted: Throttle) -> None: ...


class Outcomes:
    """The outcomes of the attempts of one session."""

    def __init__(self, session: int, settler: OutcomeWriter, tally: MetricTally) -> None:
        self._session = session
        self._settler = settler
        self._hooks = settler.hooks
        self._tally = tally
        self._ended = AttemptBuffer(tally)
        self._chance = random.Random()  # noqa: S311 - jitter, not secrets

    def count(self) -> None:
        """Count the attempts that have ended in the tally."""
        self._ended.flush()

    def add_success(self, running: RunningCall, job: ClaimedJob, ended: float) -> None:
        """Add a success at the first attempt, without steps, progress or a transaction of its own: the usual case."""
        definition = running.definition
        self._ended.add(job.queue, job.task, "succeeded", job.waited, ended - running.started, job.tenant)
        self._settler.add(
            SettleResult(
                job.id, job.attempt, running.started - job.seen, SUCCEEDED, definition.history, None, False, job.link
            ),
            # Other jobs wait for it. Those of a group are many: they are written in batches.
            at_once=definition.settle_at_once or job.link == 0,
        )

    @property
    def success_adder(self) -> Callable[[RunningCall, ClaimedJob, float], None]:
        """Return `add_success`, or a function that also remembers the job for hooks if there are some for successes."""
        hooks = self._hooks
        if hooks is None or not hooks.wants_successes:
            return self.add_success

        def add(running: RunningCall, job: ClaimedJob, ended: float) -> None:
            hooks.ended(job)
            self.add_success(running, job, ended)

        return add

    def add(self, running: RunningCall, job: ClaimedJob, ending: Ending, ended: float) -> None:
        """Add the outcome of one job. One that cannot be recorded does not block the others: its job is dead."""
        if self._hooks is not None:
            self._hooks.ended(job)
        try:
            self._add(running, job, ending, ended)
        except Exception as error:  # noqa: BLE001 - see above
            reason = "its outcome could not be recorded"
            dead = Settlement("dead", reason=reason, error=describe(error), failed=1)
            self._settler.add(SettleResult(job.id, job.attempt, running.started - job.seen, dead, link=job.link))

    def _add(self, running: RunningCall, job: ClaimedJob, ending: Ending, ended: float) -> None:
        definition = running.definition
        context = running.context
        is_settled = context is not None and job.id in context.settled_ids
        if context is not None and is_settled and ending is not None:
            # A handler may also return what it has given to `set_result`, as its annotation says.
            if ending != context.success:
                hidden = definition.arguments.encrypted
                report_after_success(job, self._decide(running, job, ending) if hidden else ending)
            ending = None
        elif isinstance(ending, TimeoutError) and ending is running.stopped and context and context.has_advanced:
            ending = continued(ending)
        if ending is None and context is not None:
            ending = context.success
        decision = self._decide(running, job, ending)
        ran = ended - running.started
        self._ended.add(job.queue, job.task, decision.outcome, job.waited, ran, job.tenant)
        if decision.outcome == "succeeded":
            fingerprint = None
            if job.failures:
                self._tally.succeeded_after(job.task, job.failures)
            if decision.result is not None:
                self._count_result(definition, decision.result)
            if logs_successes():
                report(job, decision, ran, self._session)
        else:
            fingerprint = self._fingerprint(job, decision)
            report(job, decision, ran, self._session, fingerprint)
        if is_settled or decision is SETTLED_ELSEWHERE:
            self._settler.confirm(job)
            return
        # Another process or an earlier attempt may have written steps or progress; this process cannot know.
        wrote = job.attempt > 1 or (context is not None and context.used_side_rows) or runs_alone(definition, job)
        began = running.started - job.seen
        chunks = decision.chunks if context is None else context.unstored_chunks()
        self._settler.add(
            SettleResult(
                job.id, job.attempt, began, decision, definition.history, fingerprint, wrote, job.link, chunks
            ),
            at_once=definition.settle_at_once or job.link == 0,
        )

    def _count_result(self, definition: TaskDefinition, raw: bytes) -> None:
        if definition.result is not None and definition.result.counts is not None:
            self._tally.result(definition.name, definition.result.counts.read(raw))

    def _decide(self, running: RunningCall, job: ClaimedJob, ending: Ending) -> Settlement:
        if ending is None:
            return SUCCEEDED
        definition, context = running.definition, running.context
        policy = (context.retry if context is not None else None) or definition.retry
        decision = settlement(ending, failures=job.failures, crashes=job.crashes, policy=policy, chance=self._chance)
        if isinstance(definition.arguments, EncryptedArguments) and decision.outcome != "succeeded":
            if running.hidden is None:
                running.hidden = definition.arguments.hidden_values(each.args for each in running.jobs)
            running.hidden.hide(decision)
        return decision

    def _fingerprint(self, job: ClaimedJob, decision: Settlement) -> str | None:
        """Count the failure and return its fingerprint; None if the attempt did not fail."""
        found = failure(job.task, decision)
        if found is None:
            return None
        self._tally.failed(found, job.id, job.tenant)
        return found.fingerprint
