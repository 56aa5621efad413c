"""The context of a running attempt. The worker passes it to a parameter that is annotated `Context`."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, get_type_hints, overload

import msgspec
import psycopg

from sereno.database.database import Database
from sereno.database.json_values import stored
from sereno.database.statement import Operation, arun, run
from sereno.duration import Duration
from sereno.duration import seconds as length
from sereno.error_text import storable
from sereno.errors import ConfigurationError, InvalidArguments, LeaseLost
from sereno.jobs.attempt import LONGEST_CLOSE, SUCCEEDED, Snooze, Throttle
from sereno.jobs.chunks import ChunkBatch
from sereno.jobs.job import ClaimedJob
from sereno.jobs.limits.store import throttle
from sereno.jobs.result import ResultType
from sereno.jobs.retry import Backoff
from sereno.jobs.settlement import SettleResult, report_progress, settle
from sereno.telemetry.log_events import JobLogger
from sereno.telemetry.tracing import trace_id
from sereno.text import check_text
from sereno.worker.emitted_chunks import EmittedChunks, store_emitted
from sereno.worker.iteration import COMMIT_EVERY, Iteration, SyncIteration
from sereno.worker.iteration_sources import Source
from sereno.worker.steps import JobSteps
from sereno.worker.waiting_methods import WaitingMethods

P = ParamSpec("P")
T = TypeVar("T")
_FIRST_CHUNK = threading.Lock()


class Context(WaitingMethods):
    """The running attempt: its identity, and the operations available to its handler.

    Attributes:
        job_id: The id of the job; in a batch, of its first one.
        task: The name of the task.
        queue: The queue of the job.
        tenant: Its tenant, or None.
        attempt: The number of this attempt, from 1 on, never used again.
        failures: How many attempts before it failed.
        trace: The trace id of the job, or None.
        fire: The instant of the schedule that created this job, or None.
        session: The id of the worker's session.
        claimed_at: When it was claimed.
        cancel_requested: Whether an operator has cancelled the job.
        stop_requested: Whether the worker stops: end soon, where the next attempt can continue. Iterations do so.
        retry: The retry policy of this job, for a handler to set; None: that of its task.
    """

    def __init__(
        self,
        job: ClaimedJob,
        session: int,
        database: Database,
        *,
        keep_history: bool = True,
        result_type: ResultType | None = None,
        began: Callable[[], float] = lambda: 0.0,
        throttler: Callable[[int, int, Throttle], None] | None = None,
        batch: Sequence[ClaimedJob] = (),
        is_own_flow: Callable[[], bool] = lambda: True,
    ) -> None:
        """`batch`: all jobs of the call; `job` is the first. `began`: the seconds from its claim to the call.

        `is_own_flow`: whether the caller is the handler's own task or thread, and not one that the handler started.
        """
        self.job_id = job.id
        self.task = job.task
        self.queue = job.queue
        self.tenant = job.tenant
        self.attempt = job.attempt
        self.failures = job.failures
        self.trace = trace_id(job.trace)
        self.fire = job.fire
        self.session = session
        self.claimed_at = datetime.fromtimestamp(job.claimed_at, UTC)
        self.cancel_requested = False
        self.stop_requested = False
        self.retry: Backoff | None = None
        # Whether this attempt has advanced an iteration.
        self.has_advanced = False
        # Ids of the jobs that `transaction` has settled.
        self.settled_ids: frozenset[int] = frozenset()
        # Whether this attempt may have written steps or progress, which the settlement has to delete.
        self.used_side_rows = False
        self.reported: tuple[float, str | None] | None = None
        self.emitted: EmittedChunks | None = None
        self._database = database
        # What `transaction` uses.
        self._transactions = database
        self._keep_history = keep_history
        self._result_type = result_type
        # The success that `set_result` prepared.
        self.success = SUCCEEDED
        self._began = began
        self._job = job
        self._is_batch = bool(batch)
        self._jobs = batch or (job,)
        self._throttler = throttler
        self._steps: JobSteps | None = None
        self.is_own_flow = is_own_flow
        self._iterations: set[str] = set()

    @property
    def settled(self) -> bool:
        """Whether `transaction` has committed."""
        return bool(self.settled_ids)

    @property
    def max_result_bytes(self) -> int:
        """The largest result that is stored."""
        return self._database.settings.max_result_bytes

    @property
    def fence(self) -> tuple[int, int, int]:
        """(job, attempt, session): a fencing token to guard your own writes with."""
        return self.job_id, self.attempt, self.session

    @property
    def log(self) -> JobLogger:
        """A logger whose lines carry the job, attempt, tenant and trace."""
        return JobLogger(
            {
                "job_id": self.job_id,
                "task": self.task,
                "queue": self.queue,
                "tenant": self.tenant,
                "attempt": self.attempt,
                "trace_id": self.trace,
            }
        )

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Report progress, from 0 to 1. Cheap: only the newest value is written, once a second."""
        self.reported = (min(1.0, max(0.0, float(fraction))), note)
        self.used_side_rows = True

    def emit(self, chunk: Any) -> None:
        """Send a chunk, any JSON value, to those who watch this job. Cheap: chunks are written a few times a second.

        They arrive in order; a later attempt starts anew. At most 64 KiB each, and 10,000 with 4 MiB per attempt.
        """
        if self.settled or self._is_batch:
            why = "ctx.transaction() has settled it: emit before" if self.settled else "a batch task cannot emit chunks"
            raise ConfigurationError(f"job {self.job_id}: {why}")
        if self.emitted is None:
            self.used_side_rows = True
            # Threads of a sync handler may emit at the same time.
            with _FIRST_CHUNK:
                self.emitted = self.emitted or EmittedChunks(self.job_id, self.attempt)
        self.emitted.add(chunk)

    def throttle(self, limit: str, *, seconds: Duration, key: str | None = None) -> None:
        """Close a limit for some time, for example after a provider returned 429: no job starts under it meanwhile.

        `key`: by default the key of this job. Running jobs are not affected.
        """
        check_text("limit", limit)
        if key:
            check_text("key", key)
        wanted = Throttle(min(length(seconds), LONGEST_CLOSE), limit, key)
        if self._throttler is not None and _is_in_event_loop():
            self._throttler(self.job_id, self.attempt, wanted)
        elif not self._database.run_one(throttle(self.session, self.job_id, self.attempt, *wanted)):
            raise ConfigurationError(f"ctx.throttle: there is no limit named {limit}")

    def set_result(self, value: Any) -> None:
        """Set what `job.result()` returns, for a handler that uses `transaction`: it commits with the transaction.

        Without a transaction, return the value instead.
        """
        if self._result_type is None:
            raise ConfigurationError(
                f"ctx.set_result: task {self.task} keeps no result; annotate what it returns, or declare it with "
                "result=True"
            )
        self.success = self._result_type.settlement(value, self.max_result_bytes)

    def transaction(self) -> "Transaction":
        """Return a transaction whose commit also settles this job as succeeded, so its effects happen exactly once.

        `async with ctx.transaction() as connection:` in async handlers, `with` in sync ones. At most once per call. In
        a batch task it settles all jobs of the batch; if this attempt has lost one of them, all is rolled back.
        """
        if self.settled:
            raise ConfigurationError(
                f"job {self.job_id}: ctx.transaction() has already settled it; use one block for all writes"
            )
        return Transaction(self)

    @overload
    async def step(self, name: str, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def step(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a function once and store its result; a later attempt gets the stored result and skips the call."""
        in_order = self.is_own_flow()
        known = await self._ado(self._job_steps().ask(name, in_order=in_order))
        if known is not None:
            return _restored(function, known.result)
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            result = await result
        raw = _result(name, result)
        self.used_side_rows = True
        await self._ado(self._job_steps().keep(name, raw, in_order=in_order))
        return result

    def run_step(self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`step` for sync handlers."""
        in_order = self.is_own_flow()
        known = self._do(self._job_steps().ask(name, in_order=in_order))
        if known is not None:
            return _restored(function, known.result)  # type: ignore[no-any-return]  # stored by this very function
        result = function(*args, **kwargs)
        raw = _result(name, result)
        self.used_side_rows = True
        self._do(self._job_steps().keep(name, raw, in_order=in_order))
        return result

    def iterate(self, name: str, source: Source[T], *, commit_every: int = COMMIT_EVERY) -> Iteration[T]:
        """Iterate so that the next attempt continues at the last commit: `async for row in ctx.iterate("rows", rows)`.

        `source`: a Keyset, Lines, a list, or a function of the cursor that yields (item, cursor). The cursor is stored
        after every `commit_every` items. With `.batches()`, writes of a batch can commit together with the cursor.
        """
        return Iteration(self, self._database, self._iteration_name(name), source, commit_every)

    def run_iterate(self, name: str, source: Source[T], *, commit_every: int = COMMIT_EVERY) -> SyncIteration[T]:
        """`iterate` for sync handlers: `for row in ctx.run_iterate(…)`."""
        return SyncIteration(self, self._database, self._iteration_name(name), source, commit_every)

    def _iteration_name(self, name: str) -> str:
        if name in self._iterations or (self._steps is not None and self._steps.has(name)):
            raise ConfigurationError(
                f"job {self.job_id}: {name!r} is the name of another step or iteration: choose another one"
            )
        self._iterations.add(name)
        return name

    async def sleep(self, name: str, wait: Duration) -> None:
        """Snooze the job for `wait`, which frees its slot. The end is stored as step `name`, for later attempts."""
        await self.sleep_until(await self.step(name, self._after, length(wait)))

    def _after(self, wait: float) -> datetime:
        return self.claimed_at + timedelta(seconds=wait)

    async def sleep_until(self, moment: datetime) -> None:
        """Snooze the job until `moment`, which frees its slot. It then runs from the top and skips finished steps."""
        self.snooze_until(moment)
        await asyncio.sleep(0)

    def snooze_until(self, moment: datetime) -> None:
        """`sleep_until` for sync handlers."""
        if self.claimed_at < moment:
            raise Snooze(until=moment)

    def _settle_all(self) -> Operation[frozenset[int]]:
        """Settle every job of the call as succeeded, or raise LeaseLost."""
        started = self._began() + self._job.seen
        items = [
            SettleResult(
                job.id,
                job.attempt,
                started - job.seen,
                self.success,
                self._keep_history,
                side_rows=self.used_side_rows or job.attempt > 1,
                link=job.link,
                chunks=self.unstored_chunks(),
            )
            for job in self._jobs
        ]
        applied = yield from settle(items[0].way, self.session, items)
        for item in items:
            if item.id not in applied:
                raise LeaseLost(
                    f"job {item.id}: attempt {item.attempt} has lost its lease; the transaction is rolled back"
                )
        return frozenset(applied)

    @asynccontextmanager
    async def _in_async(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with self._transactions.aconnection() as connection:
            async with connection.transaction():
                yield connection
                applied = await arun(connection, self._settle_all(), self._database.settings.schema)
            self.settled_ids = applied

    @contextmanager
    def _in_sync(self) -> Iterator[psycopg.Connection[Any]]:
        with self._transactions.connection() as connection:
            with connection.transaction():
                yield connection
                applied = run(connection, self._settle_all(), self._database.settings.schema)
            self.settled_ids = applied

    def unstored_chunks(self) -> Sequence[ChunkBatch]:
        """Return the chunks that the settlement has to store."""
        return () if self.emitted is None else self.emitted.unstored()

    async def flush_chunks(self) -> None:
        """Write the chunks that are not stored yet. Called by the process of an isolated task."""
        if self.emitted is not None:
            await store_emitted(self._database, self.session, [self.emitted])

    async def flush_progress(self) -> None:
        """Write the newest progress, if there is any. Called by the worker."""
        if self.reported is not None:
            (fraction, text), self.reported = self.reported, None
            # A note with characters that PostgreSQL cannot store must not block the progress of other jobs.
            note = None if text is None else storable(text)
            await self._database.arun_one(report_progress(self.session, self.job_id, self.attempt, fraction, note))


class Transaction:
    """The result of `Context.transaction`, for `with` and `async with`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sync: AbstractContextManager[psycopg.Connection[Any]] | None = None
        self._async: AbstractAsyncContextManager[psycopg.AsyncConnection[Any]] | None = None

    def __enter__(self) -> psycopg.Connection[Any]:
        self._sync = self._context._in_sync()  # noqa: SLF001 - Transaction is a part of Context
        return self._sync.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._sync is not None
        return self._sync.__exit__(kind, error, trace)

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        self._async = self._context._in_async()  # noqa: SLF001 - Transaction is a part of Context
        return await self._async.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._async is not None
        return await self._async.__aexit__(kind, error, trace)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _result(name: str, result: Any) -> bytes:
    return stored(result, lambda why: InvalidArguments(f"step {name!r} returned a result that cannot be stored: {why}"))


def _restored(function: Callable[..., Any], value: Any) -> Any:
    """Return the stored result, converted to the annotated return type of the function."""
    try:
        wanted = get_type_hints(function).get("return", Any)
    except (NameError, TypeError, AttributeError):
        return value
    return msgspec.convert(value, wanted) if wanted is not type(None) else None
