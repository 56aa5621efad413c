"""Sentry: failures of attempts with what is known of their job, and cron monitors of the declared schedules.

    import sentry_sdk
    from sereno.contrib.sentry import instrument

    sentry_sdk.init(dsn="…")
    instrument(app)

Call it once per process, where the SDK is set up. An exception of a handler is reported in the process that runs it,
with its stack. A job that dies without one (a timeout, arguments that cannot be decoded) is reported as a message, when
its outcome is stored. Secrets are masked by their names and patterns, as on the dashboard.
"""

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Literal, NamedTuple

import msgspec
import sentry_sdk
from sentry_sdk.crons import capture_checkin
from sentry_sdk.scope import add_global_event_processor
from sentry_sdk.utils import event_from_exception

from sereno.access.masking import masked
from sereno.app import Sereno
from sereno.contrib.sentry_monitors import monitor_config, monitor_slug
from sereno.jobs.attempt import settlement
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import OWN_TASKS
from sereno.schedules.queries import key_of
from sereno.telemetry import tracing
from sereno.telemetry.log_events import logger
from sereno.worker.context import Context
from sereno.worker.hooks import JobEvent

Failures = Literal["dead", "all"]

# Seconds in which a process that ends sends its last events.
FLUSH_TIMEOUT = 3.0
# Bytes of arguments, and ids of a batch, that an event shows.
LARGEST_ARGUMENTS, MOST_IDS = 16 * 1024, 100
# Attempts and schedules that a process remembers.
MOST_REMEMBERED = 1000
# How the reasons of deaths begin that no handler has raised.
_OF_ENGINE = (
    "crash loop: ",
    "expired before ",
    "its outcome could not ",
    "undecodable arguments: ",
    "unreadable job: ",
)
# The error of a job that was stopped at its timeout.
_TIMEOUT, _RAN_LONGER = "TimeoutError", "ran longer than "
_log = logging.getLogger(__name__)
_active: "Sentry | None" = None


def instrument(app: Sereno, *, failures: Failures = "dead", arguments: bool = True, monitors: bool = True) -> None:
    """Report the failures of this process.

    failures: "dead" reports the last failure of a job, "all" also those that are retried. arguments: with the masked
    arguments of the job, unless they are encrypted. monitors: check in the runs of the declared schedules.
    """
    global _active  # noqa: PLW0603 - the SDK itself is set up once per process
    uninstrument()
    _active = Sentry(app, failures, arguments=arguments, monitors=monitors)
    tracing.add_watcher(_active)
    app.on("job.dead", "job.failed")(_active.job_failed)
    add_global_event_processor(_active.without_log_line)


def uninstrument() -> None:
    """Report no more."""
    global _active  # noqa: PLW0603 - see above
    if _active is not None:
        tracing.remove_watcher(_active)
        _active.is_closed = True
        _active = None


class Monitor(NamedTuple):
    """The cron monitor of one schedule."""

    slug: str
    config: dict[str, Any]


class Sentry:
    """Reports failures and check-ins. Nothing that goes wrong here fails an attempt."""

    def __init__(self, app: Sereno, failures: Failures, *, arguments: bool, monitors: bool) -> None:
        self._app = app
        self._failures = failures
        self._shows_arguments = arguments
        self._has_monitors = monitors
        self.is_closed = False
        # Attempts whose exception was reported in this process.
        self._reported: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._by_key: dict[str, Monitor] | None = None
        self._by_id: OrderedDict[int, Monitor | None] = OrderedDict()

    def traces(self, jobs: Sequence[ClaimedJob]) -> bool:
        """Return whether it runs around the attempt: not around those of sereno's internal tasks."""
        return not jobs[0].task.startswith(OWN_TASKS)

    def flush(self) -> None:
        """Send the events that wait to be sent, for some seconds at most."""
        sentry_sdk.flush(timeout=FLUSH_TIMEOUT)

    async def attempt(self, jobs: Sequence[ClaimedJob], hides_errors: bool, context: Context) -> AsyncIterator[None]:
        """Report what the handler raises. What it captures itself has the tags of the job, too."""
        with sentry_sdk.isolation_scope() as scope:
            monitor = await self._begin(scope, jobs, hides_errors, context)
            try:
                yield
            except BaseException as error:
                with _never_raising(context.job_id):
                    self._end(error, monitor, jobs, hides_errors, context)
                raise
            with _never_raising(context.job_id):
                _check_in(monitor, context.job_id, "ok")

    async def _begin(
        self, scope: sentry_sdk.Scope, jobs: Sequence[ClaimedJob], hides_errors: bool, context: Context
    ) -> "Monitor | None":
        """Describe the job in the scope, and check it in; return its monitor."""
        with _never_raising(context.job_id):
            _continue_trace(jobs[0])
            scope.set_transaction_name(context.task)
            scope.set_tags(_tags(context.task, context.queue, context.tenant, context.trace))
            scope.set_context("job", self._details(jobs, context, hides_errors))
            fire = jobs[0].fire
            monitor = None if fire is None else await self._monitor(fire.schedule_id)
            _check_in(monitor, context.job_id, "in_progress")
            return monitor
        return None

    def _end(
        self,
        error: BaseException,
        monitor: "Monitor | None",
        jobs: Sequence[ClaimedJob],
        hides_errors: bool,
        context: Context,
    ) -> None:
        outcome = self._outcome(error, jobs[0], context)
        if outcome == "dead":
            _check_in(monitor, context.job_id, "error")
        if outcome == "dead" or (outcome == "retry" and self._failures == "all"):
            for job in jobs:
                _remember(self._reported, (job.id, job.attempt), None)
            _capture(error, outcome, hides_errors=hides_errors)

    async def job_failed(self, event: JobEvent) -> None:
        """Report a failure that no handler has raised, after it was stored."""
        is_dead = event.name == "job.dead"
        if self.is_closed or self._reported.pop((event.job_id, event.attempt), self) is None:
            return
        if is_dead and event.schedule_id is not None:
            _check_in(await self._monitor(event.schedule_id), event.job_id, "error")
        if not self._is_of_engine(event) or not (is_dead or self._failures == "all"):
            return
        text = event.error_type if self._hides_errors(event.task) else event.error_message or event.reason
        kind = event.error_type or (event.reason or "").partition(":")[0]
        with sentry_sdk.isolation_scope() as scope:
            scope.set_transaction_name(event.task)
            scope.set_tags(_tags(event.task, event.queue, event.tenant, event.trace))
            scope.set_tag("sereno.outcome", "dead" if is_dead else "retry")
            scope.set_context("job", {"id": event.job_id, "attempt": event.attempt, "task": event.task})
            message = f"{event.task}: {masked(text or event.name)}"
            sentry_sdk.capture_event({"level": "error", "message": message, "fingerprint": [event.task, kind]})

    def without_log_line(self, event: Any, _: Any) -> Any:
        """Drop the event that the SDK makes of the log line about a dead job: it is reported already."""
        is_reported = event.get("logger") == logger.name and (event.get("extra") or {}).get("event") == "job.dead"
        return None if is_reported and not self.is_closed else event

    def _outcome(self, error: BaseException, job: ClaimedJob, context: Context) -> str:
        """Return what the error means for the job, as it will be decided."""
        # A timeout and a stop from outside cancel the handler; the outcome is known later.
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            return "cancelled"
        policy = context.retry or self._app.registry.find(job.task).retry
        chance = Random(0)  # noqa: S311 - the delay is not used
        return settlement(error, failures=job.failures, crashes=job.crashes, policy=policy, chance=chance).outcome

    def _is_of_engine(self, event: JobEvent) -> bool:
        """Return whether no handler has raised it; each item of a batch has an outcome of its own."""
        if event.error_type == _TIMEOUT and (event.error_message or "").startswith(_RAN_LONGER):
            return True
        is_batch = event.task in self._app.registry.names and bool(self._app.registry.find(event.task).batch)
        return is_batch or (event.reason or "").startswith(_OF_ENGINE)

    def _hides_errors(self, task: str) -> bool:
        return task in self._app.registry.names and bool(self._app.registry.find(task).arguments.encrypted)

    def _details(self, jobs: Sequence[ClaimedJob], context: Context, hides_errors: bool) -> dict[str, Any]:
        found: dict[str, Any] = {
            "id": context.job_id,
            "task": context.task,
            "queue": context.queue,
            "attempt": context.attempt,
            "failures": context.failures,
            "session": context.session,
        }
        if len(jobs) > 1:
            return found | {"batch": [job.id for job in jobs[:MOST_IDS]]}
        raw = bytes(jobs[0].args)
        if self._shows_arguments and not hides_errors and len(raw) <= LARGEST_ARGUMENTS:
            found["arguments"] = masked(msgspec.json.decode(raw))
        return found

    async def _monitor(self, schedule_id: int) -> "Monitor | None":
        """Return the monitor of the schedule with this id, if the code declares it."""
        if not self._has_monitors:
            return None
        if schedule_id not in self._by_id:
            key = await self._app.database.arun(key_of(schedule_id))
            _remember(self._by_id, schedule_id, None if key is None else self._monitors().get(key))
        return self._by_id[schedule_id]

    def _monitors(self) -> Mapping[str, "Monitor"]:
        """Return the monitors by the keys of the declared schedules, but for those of sereno itself."""
        if self._by_key is None:
            self._by_key, names = {}, set[str]()
            for key, each in sorted(self._app.schedules.declared.items()):
                task = each.job.task
                if task.startswith(OWN_TASKS) or task not in self._app.registry.names:
                    continue
                config = monitor_config(each.checked().when, self._app.registry.find(task).timeout)
                if config is not None:
                    slug = monitor_slug(key, names)
                    names.add(slug)
                    self._by_key[key] = Monitor(slug, config)
        return self._by_key


def _check_in(monitor: Monitor | None, job_id: int, status: str) -> None:
    if monitor is None:
        return
    options = sentry_sdk.get_client().options
    # The attempts of one job, in whatever processes, are one check-in.
    name = f"{options.get('dsn')} {options.get('environment')} {monitor.slug} {job_id}"
    config: Any = monitor.config
    capture_checkin(monitor.slug, uuid.uuid5(uuid.NAMESPACE_URL, name).hex, status, monitor_config=config)


def _capture(error: BaseException, outcome: str, *, hides_errors: bool) -> None:
    options = sentry_sdk.get_client().options
    event, hint = event_from_exception(error, client_options=options, mechanism={"type": "sereno", "handled": False})
    event["tags"] = {"sereno.outcome": outcome}
    _mask(event, hides_errors)
    # The hint has the exception itself, from which other integrations would read what is left out.
    sentry_sdk.capture_event(event, hint={} if hides_errors else hint)


@contextmanager
def _never_raising(job_id: int) -> Iterator[None]:
    """Log an error of a report: no attempt may fail for it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - see above
        _log.warning("job %d could not be reported to Sentry: %s", job_id, type(error).__name__)


def _remember(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    known[key] = value
    while len(known) > MOST_REMEMBERED:
        known.popitem(last=False)


def _tags(task: str, queue: str, tenant: str | None, trace: str | None) -> dict[str, str]:
    found = {"sereno.task": task, "sereno.queue": queue}
    if tenant is not None:
        found["sereno.tenant"] = tenant
    if trace is not None:
        found["sereno.trace"] = trace
    return found


def _continue_trace(job: ClaimedJob) -> None:
    """Give the events of the attempt the trace of the job, if that is a W3C traceparent."""
    if job.trace is not None and tracing.trace_id(job.trace) is not job.trace:
        _, trace, span, _ = job.trace.split("-")
        sentry_sdk.continue_trace({"sentry-trace": f"{trace}-{span}"})


def _mask(event: Any, hides_errors: bool) -> None:
    """Mask messages and local variables; leave them out of a task with encrypted arguments.

    The frames of the engine hold the arguments under other names, so their variables are left out, too.
    """
    for value in event["exception"]["values"]:
        value["value"] = "" if hides_errors else masked(value.get("value") or "")
        for frame in (value.get("stacktrace") or {}).get("frames", ()):
            if hides_errors or str(frame.get("module")).startswith(OWN_TASKS):
                frame.pop("vars", None)
            elif "vars" in frame:
                frame["vars"] = masked(frame["vars"])
