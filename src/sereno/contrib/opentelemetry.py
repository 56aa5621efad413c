"""OpenTelemetry: spans of enqueues and attempts, by the semantic conventions for messaging.

    from sereno.contrib.opentelemetry import instrument

    instrument()

Call it once per process, where the tracer provider is set up. An enqueue is a PRODUCER span. The first attempt of a job
is its child, in whatever process it runs, and so is one that continues after a wait. An attempt after a failure begins
a trace of its own and has a link to it. Where nothing is sampled, nothing is stored and no span is made.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sereno.jobs.attempt import Outcome
from sereno.jobs.job import ClaimedJob, JobOptions, NewJob
from sereno.jobs.task import OWN_TASKS
from sereno.telemetry import tracing
from sereno.version import __version__
from sereno.worker.context import Context

# Milliseconds in which a process that ends sends its last spans.
FLUSH_TIMEOUT = 3_000
_HEADER = "traceparent"
_PROPAGATOR = TraceContextTextMapPropagator()
# Descriptions of samplers that sample nothing without a sampled parent.
_OFF = ("AlwaysOffSampler", "ParentBased{root:AlwaysOffSampler")


def instrument(tracer_provider: trace.TracerProvider | None = None) -> None:
    """Trace the enqueues and attempts of this process. `tracer_provider`: by default the global one."""
    tracing.set_active(OpenTelemetry(tracer_provider))


def uninstrument() -> None:
    """Trace no more."""
    tracing.set_active(None)


class OpenTelemetry:
    """Makes the spans."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._provider = provider
        self._checked: trace.TracerProvider | None = None
        self._makes_roots = False

    def _tracer(self) -> trace.Tracer:
        return trace.get_tracer("sereno", __version__, self._provider)

    def _samples_roots(self) -> bool:
        """Return whether a span without a parent may be sampled. Read once for each provider."""
        provider = self._provider or trace.get_tracer_provider()
        if provider is not self._checked:
            sampler = getattr(provider, "sampler", None)
            # A provider of the API alone makes no spans.
            self._makes_roots = sampler is not None and not sampler.get_description().startswith(_OFF)
            self._checked = provider
        return self._makes_roots

    @contextmanager
    def enqueuing(self, jobs: Sequence[NewJob]) -> Iterator[None]:
        """The PRODUCER span of an enqueue."""
        if not self._samples_roots() and not trace.get_current_span().get_span_context().trace_flags.sampled:
            yield
            return
        names = {job.task for job in jobs}
        queues = {job.options.queue for job in jobs}
        one = next(iter(names)) if len(names) == 1 else None
        attributes: dict[str, Any] = {
            "messaging.system": "sereno",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
        }
        if one is not None:
            attributes["sereno.task"] = one
        if len(queues) == 1 and (queue := next(iter(queues))) is not None:
            attributes["messaging.destination.name"] = queue
        if len(jobs) > 1:
            attributes["messaging.batch.message_count"] = len(jobs)
        with self._tracer().start_as_current_span(
            f"enqueue {one or 'jobs'}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            yield

    def with_trace(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Return the jobs; those without a trace of their own get the current span."""
        parent = self.current()
        if parent is None:
            return jobs
        # Jobs that share their options go on sharing them.
        changed: dict[int, JobOptions] = {}

        def traced(job: NewJob) -> NewJob:
            if job.options.trace is not None:
                return job
            options = changed.get(id(job.options))
            if options is None:
                options = changed[id(job.options)] = msgspec.structs.replace(job.options, trace=parent)
            return msgspec.structs.replace(job, options=options)

        return [traced(job) for job in jobs]

    def current(self) -> str | None:
        """Return the current span as a traceparent, or None."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get(_HEADER)

    def traces(self, jobs: Sequence[ClaimedJob]) -> bool:
        """Return whether the attempt of these jobs gets a span."""
        return any(self._is_sampled(job) for job in jobs)

    def _is_sampled(self, job: ClaimedJob) -> bool:
        parent = _parent(job.trace)
        if parent is not None:
            return parent.trace_flags.sampled
        # Batches of deliveries, upkeep and the like would be traces without anything of the application.
        return self._samples_roots() and not job.task.startswith(OWN_TASKS)

    def flush(self) -> None:
        """Send the spans that wait to be sent, for some seconds at most."""
        provider: Any = self._provider or trace.get_tracer_provider()
        # A provider of the API alone has none.
        if flush := getattr(provider, "force_flush", None):
            flush(FLUSH_TIMEOUT)

    async def attempt(self, jobs: Sequence[ClaimedJob], hides_errors: bool, context: Context) -> AsyncIterator[None]:
        """The CONSUMER span of an attempt. `hides_errors`: a message may hold decrypted arguments."""
        job = jobs[0]
        parents = [parent for each in jobs if (parent := _parent(each.trace)) is not None]
        # A span has one parent: a batch has links instead, and so has an attempt after a failure.
        is_child = len(jobs) == 1 and not job.failures and not job.crashes and bool(parents)
        under = trace.set_span_in_context(trace.NonRecordingSpan(parents[0])) if is_child else None
        with self._tracer().start_as_current_span(
            f"process {job.task}",
            context=under,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(jobs, context),
            links=() if is_child else [Link(parent) for parent in parents],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                _add_error(span, error, hides_errors)
                raise


def _attributes(jobs: Sequence[ClaimedJob], context: Context) -> dict[str, Any]:
    job = jobs[0]
    found: dict[str, Any] = {
        "messaging.system": "sereno",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": job.queue,
        "sereno.task": job.task,
        "sereno.attempt": job.attempt,
        "sereno.session": context.session,
    }
    if context.tenant is not None:
        found["sereno.tenant"] = context.tenant
    if len(jobs) > 1:
        found["messaging.batch.message_count"] = len(jobs)
    else:
        found["messaging.message.id"] = str(job.id)
    return found


def _add_error(span: Span, error: BaseException, hides_errors: bool) -> None:
    """Mark the attempt as failed. Snooze, Cancel and the like are outcomes."""
    if isinstance(error, Outcome):
        span.set_attribute("sereno.outcome", type(error).__name__.lower())
        return
    span.set_attribute("error.type", type(error).__qualname__)
    if not hides_errors:
        span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))


def _parent(trace_text: str | None) -> SpanContext | None:
    """Return the span that a traceparent names; None for any other text."""
    if trace_text is None or tracing.trace_id(trace_text) is trace_text:
        return None
    _, trace_number, span_number, flags = trace_text.split("-")
    return SpanContext(
        int(trace_number, 16),
        int(span_number, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState(),
    )
