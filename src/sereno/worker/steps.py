"""The steps of one attempt: stored results, their order, and the signals that it waits for.

The order of steps. A new step may run only after the attempt has asked for every step that an earlier attempt stored:
otherwise the code has changed, and the new step would run beside results of another order. Two kinds are exempt: a step
that the earlier attempt had asked for too before it stored the other one (it failed, or it ran beside it), and steps
outside of the handler's own task or thread, which have no order (`asyncio.gather`).
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from sereno.database.json_values import stored
from sereno.database.statement import Plan
from sereno.error_text import storable
from sereno.errors import InvalidArguments, SignalTimeout, StepOrderChanged
from sereno.jobs import signals
from sereno.jobs.arguments import decode_model
from sereno.jobs.attempt import Snooze
from sereno.jobs.job import ClaimedJob, NewJob
from sereno.jobs.settlement import StoredStep, keep_step, steps
from sereno.jobs.signals import Which
from sereno.telemetry import tracing
from sereno.worker import child_jobs

# Names that an error message lists at most.
NAMED_STEPS = 5
TIMED_OUT = {"timed_out": True}


class AwaitSignal(Snooze):
    """The job waits for a signal. It runs again when the signal was sent, or when the wait times out."""


class JobSteps:
    """Results of the steps of a job, as far as this attempt knows them."""

    def __init__(self, job: ClaimedJob, session: int) -> None:
        self._job = job
        self._session = session
        self._stored: dict[str, StoredStep] = {}
        self._asked: set[str] = set()
        # Calls by name, in this attempt.
        self._calls: Counter[str] = Counter()
        # The first attempt has nothing to load.
        self._is_loaded = job.attempt == 1

    def has(self, name: str) -> bool:
        """Return whether this attempt knows a step of this name."""
        return name in self._asked or name in self._stored

    def ask(self, name: str, *, in_order: bool) -> Plan[StoredStep | None]:
        """Return the stored step, or None if it has to run. `in_order`: the handler's own task or thread asks."""
        if not self._is_loaded:
            found: Mapping[str, StoredStep] = yield steps(self._job.id)
            # Steps that ask at the same time load at the same time; one of them may have stored its result already.
            self._stored = {**found, **self._stored}
            self._is_loaded = True
        self._asked.add(name)
        if name in self._stored:
            return self._stored[name]
        if in_order:
            self._check_order(name)
        return None

    def _check_order(self, name: str) -> None:
        skipped = [
            known
            for known, step in self._stored.items()
            if known not in self._asked and step.position is not None and name not in step.pending
        ]
        if skipped:
            skipped.sort(key=lambda known: self._stored[known].position or 0)
            more = f" and {len(skipped) - NAMED_STEPS} more" if len(skipped) > NAMED_STEPS else ""
            listed = ", ".join(map(repr, skipped[:NAMED_STEPS])) + more
            raise StepOrderChanged(
                f"job {self._job.id}: step {name!r} is new, and an earlier attempt has stored {listed} without it. "
                "For jobs that have begun, keep the names and the order of their steps; give a step that does "
                f"something else a new name, such as {name + '@2'!r}, after the stored ones"
            )

    def keep(self, name: str, raw: bytes, *, in_order: bool) -> Plan[None]:
        """Store the result of a step."""
        step = StoredStep(msgspec.json.decode(raw), *self._place(name, in_order=in_order))
        job = self._job
        yield keep_step(self._session, job.id, job.attempt, name, raw, position=step.position, pending=step.pending)
        self._stored[name] = step

    def _place(self, name: str, *, in_order: bool) -> tuple[int | None, list[str]]:
        """Return the position of a step that is stored now, and the steps that were asked for and have no result."""
        last = max((step.position or 0 for step in self._stored.values()), default=0)
        return (last + 1 if in_order else None), sorted(self._asked - self._stored.keys() - {name})

    def wait_for(self, name: str, *, timeout: float | None, which: Which, wanted: Any, in_order: bool) -> Plan[Any]:
        """Return the value of a signal, raise SignalTimeout, or raise AwaitSignal if neither is decided."""
        step = f"signal:{name}"
        known = yield from self.ask(step, in_order=in_order)
        if known is None:
            job = self._job
            received = yield signals.receive(self._session, job.id, job.attempt, name, timeout=timeout, which=which)
            if not received.values and not received.timed_out:
                waiting = AwaitSignal(until=received.until, reason=f"waits for the signal {name}")
                waiting.signal = name
                raise waiting
            values = received.values
            answer = {"value": values if which == "all" else values[0]} if values else TIMED_OUT
            position, pending = self._place(step, in_order=in_order)
            kept = yield signals.keep_answer(
                self._session,
                job.id,
                job.attempt,
                name,
                step=step,
                result=stored(answer, InvalidArguments),
                position=position,
                pending=pending,
            )
            known = self._stored[step] = StoredStep(kept, position, pending)
            if tracing.active is not None:
                tracing.active.link(received.traces)
        if known.result == TIMED_OUT:
            raise SignalTimeout(f"job {self._job.id}: no signal {name!r} was sent in time")
        return _decoded(name, known.result["value"], wanted)

    def call(self, what: str, jobs: Sequence[NewJob], name: str | None, *, in_order: bool) -> Plan[list[Any]]:
        """Return the results of jobs that this one calls, or raise WaitForJobs until they have ended."""
        child_jobs.check_calls(jobs)
        step = name or self._call_name(what)
        known = yield from self.ask(step, in_order=in_order)
        if known is None:
            position, pending = self._place(step, in_order=in_order)
            ids = yield child_jobs.enqueue_calls(self._job, self._session, step, jobs, position, pending)
            known = self._stored[step] = StoredStep(ids, position, pending)
        results: list[Any] = yield child_jobs.results_of_calls(known.result, jobs)
        return results

    def _call_name(self, what: str) -> str:
        """Return the name of a call: the same in each attempt, as long as calls are made in the same order."""
        self._calls[what] += 1
        number = self._calls[what]
        return f"call:{what}" if number == 1 else f"call:{what}:{number}"


def _decoded(name: str, value: Any, wanted: Any) -> Any:
    try:
        return msgspec.convert(value, wanted, dec_hook=decode_model)
    except Exception as error:  # noqa: BLE001 - a model's own validator may raise anything
        raise InvalidArguments(
            f"signal {name!r}: its value is not of the type that the job waits for: {storable(error)}"
        ) from None


def checked_which(which: str) -> Literal["first", "latest", "all"]:
    """Return the value of `which`, or raise InvalidArguments."""
    if which not in ("first", "latest", "all"):
        raise InvalidArguments(f'which {which!r:.60} must be "first", "latest" or "all"')
    return which  # type: ignore[return-value]  # mypy does not narrow str by a membership test


def is_current_task(task: "asyncio.Task[Any] | None") -> bool:
    """Return whether the caller runs in this task; False in a thread without an event loop."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:
        return False
