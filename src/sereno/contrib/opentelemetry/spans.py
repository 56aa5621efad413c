"""The spans of OpenTelemetry: of what is sent, of attempts, and of requests to providers."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context as SpanScope
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from sereno.access.masking import without_secrets
from sereno.contrib.opentelemetry import propagation
from sereno.contrib.opentelemetry.metrics import Metrics
from sereno.error_text import describe
from sereno.jobs.attempt import Outcome
from sereno.jobs.job import ClaimedJob, JobOptions, NewJob
from sereno.jobs.task import OWN_TASKS
from sereno.notifications.jobs import DELIVER, RECEIPTS
from sereno.telemetry.tracing import SentKind
from sereno.version import __version__
from sereno.worker.context import Context

# Milliseconds in which a process that ends sends its last spans, and its last metrics.
FLUSH_TIMEOUT = 3_000
# Jobs that belong to no trace: they send what is due, for any event.
SHARED_TASKS = (DELIVER, RECEIPTS)
# Descriptions of samplers that sample nothing without a sampled parent.
_OFF = ("AlwaysOffSampler", "ParentBased{root:AlwaysOffSampler")
_LOWEST_ERROR_STATUS = 400
_PORTS = {"http": 80, "https": 443}


class OpenTelemetry:
    """Makes the spans, and counts what is sent if there are metrics."""

    def __init__(self, provider: trace.TracerProvider | None = None, metrics: Metrics | None = None) -> None:
        self._provider = provider
        self._metrics = metrics
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

    def _may_begin(self) -> bool:
        """Return whether a span that begins now may be sampled."""
        return self._samples_roots() or trace.get_current_span().get_span_context().trace_flags.sampled

    @contextmanager
    def enqueuing(self, jobs: Sequence[NewJob]) -> Iterator[None]:
        """The PRODUCER span of an enqueue."""
        with ExitStack() as stack:
            if self._metrics is not None:
                stack.enter_context(self._metrics.sending("enqueue", Counter(job.options.queue for job in jobs)))
            if self._may_begin():
                stack.enter_context(self._enqueue_span(jobs))
            yield

    def _enqueue_span(self, jobs: Sequence[NewJob]) -> Any:
        names = {job.task for job in jobs}
        queues = {job.options.queue for job in jobs}
        one = next(iter(names)) if len(names) == 1 else None
        attributes: dict[str, Any] = {}
        if one is not None:
            attributes["sereno.task"] = one
        if len(queues) == 1 and (queue := next(iter(queues))) is not None:
            attributes["messaging.destination.name"] = queue
        if len(jobs) > 1:
            attributes["messaging.batch.message_count"] = len(jobs)
        return self._producing("enqueue", f"enqueue {one or 'jobs'}", attributes)

    @contextmanager
    def _producing(self, operation: str, name: str, attributes: dict[str, Any]) -> Iterator[None]:
        with self._tracer().start_as_current_span(
            name,
            kind=SpanKind.PRODUCER,
            attributes=_operation(operation, "send") | attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                _add_error(span, error, hides_errors=False)
                raise

    @contextmanager
    def sending(self, kind: SentKind, name: str) -> Iterator[None]:
        """The PRODUCER span of an event or a signal."""
        # The name of a signal may hold an id, and is no name of a span or a metric.
        destination = name if kind == "notify" else None
        with ExitStack() as stack:
            if self._metrics is not None:
                stack.enter_context(self._metrics.sending(kind, {destination: 1}))
            if self._may_begin():
                named = {"sereno.signal": name} if destination is None else {"messaging.destination.name": name}
                stack.enter_context(self._producing(kind, kind if destination is None else f"{kind} {name}", named))
            yield

    @contextmanager
    def delivering(self, channel: str, traces: Sequence[str], count: int) -> Iterator[Callable[[Sequence[str]], None]]:
        """The CLIENT span in which a channel sends messages: a child of their event, or linked to their events."""
        events = propagation.named_spans(traces, sampled=True)
        with self._delivery_span(channel, events, count) if events else nullcontext(trace.INVALID_SPAN) as span:

            def ended(refusals: Sequence[str]) -> None:
                if self._metrics is not None:
                    self._metrics.delivered(channel, count, refusals)
                if refusals:
                    span.set_attributes({"error.type": refusals[0], "sereno.refused": len(refusals)})
                    if len(refusals) == count:
                        span.set_status(Status(StatusCode.ERROR, refusals[0]))

            yield ended

    def _delivery_span(self, channel: str, events: Sequence[SpanContext], count: int) -> Any:
        attributes = _operation("send", "send") | {"messaging.destination.name": channel}
        if count > 1:
            attributes["messaging.batch.message_count"] = count
        is_child = len(events) == 1
        return self._tracer().start_as_current_span(
            f"send {channel}",
            context=_below(events[0]) if is_child else SpanScope(),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=() if is_child else propagation.links(events),
        )

    @contextmanager
    def requesting(self, method: str, url: str) -> Iterator[Callable[[int | str], None]]:
        """The CLIENT span of a request. It has the host, and not the URL: providers take tokens in paths."""
        is_traced = trace.get_current_span().is_recording()
        with (
            self._tracer().start_as_current_span(method, kind=SpanKind.CLIENT, attributes=_request(method, url))
            if is_traced
            else nullcontext(trace.INVALID_SPAN)
        ) as span:

            def ended(status: int | str) -> None:
                if isinstance(status, int):
                    span.set_attribute("http.response.status_code", status)
                if isinstance(status, str) or status >= _LOWEST_ERROR_STATUS:
                    span.set_attribute("error.type", str(status))
                    span.set_status(Status(StatusCode.ERROR))

            yield ended

    @contextmanager
    def under(self, traceparent: str) -> Iterator[None]:
        """Make the span of a caller the parent of those that begin meanwhile, unless there is a current span."""
        caller = propagation.named_span(traceparent)
        if caller is None or trace.get_current_span().get_span_context().is_valid:
            yield
            return
        with trace.use_span(trace.NonRecordingSpan(caller)):
            yield

    def link(self, traces: Sequence[str]) -> None:
        """Link the current span to those that these traces name."""
        span = trace.get_current_span()
        for sender in propagation.named_spans(traces):
            span.add_link(sender)

    def with_trace(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Return the jobs; those without a trace of their own get the current span."""
        parent = self.current()
        if parent is None:
            return jobs
        # Jobs that share their options go on sharing them.
        changed: dict[int, JobOptions] = {}

        def traced(job: NewJob) -> NewJob:
            if job.options.trace is not None or job.task in SHARED_TASKS:
                return job
            options = changed.get(id(job.options))
            if options is None:
                options = changed[id(job.options)] = msgspec.structs.replace(job.options, trace=parent)
            return msgspec.structs.replace(job, options=options)

        return [traced(job) for job in jobs]

    def current(self) -> str | None:
        """Return the current span as a traceparent, or None."""
        return propagation.current()

    def span_ids(self) -> tuple[str, str] | None:
        """Return the ids of the current trace and span, or None."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)

    def traces(self, jobs: Sequence[ClaimedJob]) -> bool:
        """Return whether the attempt of these jobs gets a span."""
        return self._is_sampled(jobs[0]) or (len(jobs) > 1 and any(map(self._is_sampled, jobs)))

    def _is_sampled(self, job: ClaimedJob) -> bool:
        if job.trace is not None and (parent := propagation.named_span(job.trace)) is not None:
            return parent.trace_flags.sampled
        # Batches of deliveries, upkeep and the like would be traces without anything of the application.
        return self._samples_roots() and not job.task.startswith(OWN_TASKS)

    def flush(self) -> None:
        """Send the spans and metrics that wait to be sent, for some seconds at most."""
        provider: Any = self._provider or trace.get_tracer_provider()
        # A provider of the API alone has none.
        if flush := getattr(provider, "force_flush", None):
            flush(FLUSH_TIMEOUT)
        if self._metrics is not None:
            self._metrics.flush(FLUSH_TIMEOUT)

    async def attempt(self, jobs: Sequence[ClaimedJob], hides_errors: bool, context: Context) -> AsyncIterator[None]:
        """The CONSUMER span of an attempt. `hides_errors`: a message may hold decrypted arguments."""
        job = jobs[0]
        parents = propagation.named_spans(each.trace for each in jobs)
        # A span has one parent: a batch has links instead, and so has an attempt after a failure.
        is_child = len(jobs) == 1 and not job.failures and not job.crashes and bool(parents)
        with self._tracer().start_as_current_span(
            f"process {job.task}",
            context=_below(parents[0]) if is_child else None,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(jobs, context),
            links=() if is_child else propagation.links(parents),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                _add_error(span, error, hides_errors=hides_errors)
                raise


def _below(parent: SpanContext) -> SpanScope:
    """Return the scope in which a span is a child of this one, which another process has made."""
    return trace.set_span_in_context(trace.NonRecordingSpan(parent))


def _operation(name: str, kind: str) -> dict[str, Any]:
    return {"messaging.system": "sereno", "messaging.operation.name": name, "messaging.operation.type": kind}


def _request(method: str, url: str) -> dict[str, Any]:
    found: dict[str, Any] = {"http.request.method": method}
    try:
        server = urlsplit(url)
        host, port = server.hostname, server.port
    except ValueError:
        return found
    if host:
        found["server.address"] = host
    if port or server.scheme in _PORTS:
        found["server.port"] = port or _PORTS[server.scheme]
    return found


def _attributes(jobs: Sequence[ClaimedJob], context: Context) -> dict[str, Any]:
    job = jobs[0]
    found = _operation("process", "process") | {
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


def _add_error(span: Span, error: BaseException, *, hides_errors: bool) -> None:
    """Mark the span as failed, with likely secrets masked as in logs. Snooze, Cancel and the like are outcomes."""
    if isinstance(error, Outcome):
        span.set_attribute("sereno.outcome", type(error).__name__.lower())
        return
    span.set_attribute("error.type", type(error).__qualname__)
    if not hides_errors:
        found = describe(error)
        texts = {"exception.message": found.message, "exception.stacktrace": found.traceback}
        span.record_exception(error, {name: without_secrets(text) for name, text in texts.items()})
    span.set_status(Status(StatusCode.ERROR, type(error).__name__))
