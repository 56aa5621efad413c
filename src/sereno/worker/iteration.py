"""`ctx.iterate`: long work, item by item, that the next attempt continues where the last commit was.

    async for row in ctx.iterate("rows", source, commit_every=100): …        at least once for each item

    async for batch in ctx.iterate("rows", source).batches():                exactly once for each item
        async with batch.transaction() as connection: …

An attempt that advanced its cursor and was stopped by a shutdown, a crash or its timeout is not charged for it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Generic, Protocol, TypeVar

import psycopg

from sereno.database.database import Database
from sereno.database.statement import Operation, arun, run
from sereno.errors import ConfigurationError, SerenoError
from sereno.jobs.attempt import Cancel, CrashedAttempt, Ending, Released, ReleasedAttempt
from sereno.jobs.cursors import Cursor, has_advanced, keep_cursor, read_cursor
from sereno.jobs.job import ClaimedJob
from sereno.worker.iteration_sources import Source, SourceReader

T = TypeVar("T")

# Items between two commits, unless the caller chooses.
COMMIT_EVERY = 100
# Seconds to find out whether an attempt that was stopped had advanced; without an answer it is charged.
CHECK_TIMEOUT = 2.0


class IteratingAttempt(Protocol):
    """The part of `Context` that an iteration uses."""

    job_id: int
    attempt: int
    session: int
    used_side_rows: bool
    has_advanced: bool
    cancel_requested: bool
    stop_requested: bool


class Position:
    """How far one iteration is; its operations store that."""

    def __init__(self, name: str, attempt: IteratingAttempt) -> None:
        self.name = name
        self.cursor = Cursor()
        self._attempt = attempt

    def begin(self) -> Operation[Cursor]:
        """Read where an earlier attempt has stopped."""
        if self._attempt.attempt > 1:
            self.cursor = yield from read_cursor(self._attempt.job_id, self.name)
        return self.cursor

    def advance(self, after: Any, items: int) -> Operation[Cursor]:
        """Store the cursor after these items, or raise LeaseLost; return it, for `advanced` after the commit."""
        if after is None:
            raise ConfigurationError(
                f"iteration {self.name!r}: its source yields the cursor None, which means the beginning"
            )
        return (yield from self._keep(Cursor(after, self.cursor.items + items)))

    def finish(self, after: Any, items: int) -> Operation[Cursor]:
        """Store that the iteration is complete: later attempts skip it."""
        return (yield from self._keep(Cursor(after, self.cursor.items + items, done=True)))

    def _keep(self, cursor: Cursor) -> Operation[Cursor]:
        attempt = self._attempt
        attempt.used_side_rows = True
        yield from keep_cursor(attempt.session, attempt.job_id, attempt.attempt, self.name, cursor)
        return cursor

    def advanced(self, cursor: Cursor) -> None:
        """Note that the cursor is committed."""
        self._attempt.has_advanced = self._attempt.has_advanced or cursor.items > self.cursor.items
        self.cursor = cursor

    @property
    def is_to_stop(self) -> bool:
        return self._attempt.stop_requested or self._attempt.cancel_requested

    def check_stop(self) -> None:
        """Raise an outcome if the attempt is to end; called right after a commit."""
        if self._attempt.cancel_requested:
            raise Cancel("cancelled while running")
        if self._attempt.stop_requested:
            raise Released(f"the worker stopped: iteration {self.name!r} continues in the next attempt")


class _Batch(Sequence[T]):
    """Consecutive items. `cursor`: of the source, after the last of them."""

    def __init__(self, items: Sequence[T], cursor: Any, position: Position, database: Database) -> None:
        self.items = items
        self.cursor = cursor
        self.is_committed = False
        self._has_begun = False
        self._position = position
        self._database = database

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def _advance(self) -> Operation[Cursor]:
        return self._position.advance(self.cursor, len(self.items))

    def _begin_transaction(self) -> None:
        if self.is_committed:
            raise ConfigurationError("batch.transaction() has committed this batch: use one block for all its writes")
        self._has_begun = True

    def check_end(self) -> bool:
        """Return whether the cursor is still to be stored; raise if the transaction was rolled back."""
        if self._has_begun and not self.is_committed:
            raise ConfigurationError(
                "batch.transaction() was rolled back, and the loop continued: commit the batch in another transaction, "
                "which may be empty to skip it, or let the attempt fail"
            )
        return not self.is_committed

    def _commit(self, cursor: Cursor) -> None:
        self.is_committed = True
        self._position.advanced(cursor)


class Batch(_Batch[T]):
    """Consecutive items of an iteration."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Yield a connection; what is written there commits together with the cursor, or not at all."""
        self._begin_transaction()
        async with self._database.aconnection() as connection:
            async with connection.transaction():
                yield connection
                cursor = await arun(connection, self._advance(), self._database.settings.schema)
            self._commit(cursor)


class SyncBatch(_Batch[T]):
    """`Batch` for sync handlers."""

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection; what is written there commits together with the cursor, or not at all."""
        self._begin_transaction()
        with self._database.connection() as connection:
            with connection.transaction():
                yield connection
                cursor = run(connection, self._advance(), self._database.settings.schema)
            self._commit(cursor)


class _Iteration(Generic[T]):
    def __init__(self, attempt: IteratingAttempt, database: Database, name: str, source: Source[T], every: int) -> None:
        if every < 1:
            raise ConfigurationError(f"ctx.iterate({name!r}): commit_every is {every}: give 1 or more items")
        self._every = every
        self._database = database
        self._reader = SourceReader(source, database, every)
        self._position = Position(name, attempt)


class Iteration(_Iteration[T]):
    """The result of `ctx.iterate`: iterate over its items, or over `batches()` of them."""

    async def __aiter__(self) -> AsyncIterator[T]:
        """Yield each item. The cursor is stored after `commit_every` items; a crash repeats at most that many."""
        position = self._position
        began = await self._database.arun_one(position.begin())
        if began.done:
            return
        pending, after = 0, began.cursor
        async with aclosing(self._reader.aread(began.cursor)) as pairs:
            async for item, cursor in pairs:
                yield item
                pending, after = pending + 1, cursor
                if pending >= self._every or position.is_to_stop:
                    position.advanced(await self._database.arun_one(position.advance(after, pending)))
                    pending = 0
                    position.check_stop()
        position.advanced(await self._database.arun_one(position.finish(after, pending)))

    async def batches(self) -> AsyncIterator[Batch[T]]:
        """Yield batches of `commit_every` items. A batch without `transaction()` is committed when its block ends."""
        position = self._position
        began = await self._database.arun_one(position.begin())
        if began.done:
            return
        items: list[T] = []
        async with aclosing(self._reader.aread(began.cursor)) as pairs:
            async for item, cursor in pairs:
                items.append(item)
                if len(items) >= self._every:
                    batch, items = Batch(items, cursor, position, self._database), []
                    yield batch
                    await self._commit(batch)
                    position.check_stop()
            if items:
                batch = Batch(items, cursor, position, self._database)
                yield batch
                await self._commit(batch)
        position.advanced(await self._database.arun_one(position.finish(position.cursor.cursor, 0)))

    async def _commit(self, batch: Batch[T]) -> None:
        if batch.check_end():
            self._position.advanced(
                await self._database.arun_one(self._position.advance(batch.cursor, len(batch.items)))
            )


class SyncIteration(_Iteration[T]):
    """The result of `ctx.run_iterate`: `Iteration` for sync handlers."""

    def __iter__(self) -> Iterator[T]:
        """Yield each item. The cursor is stored after `commit_every` items; a crash repeats at most that many."""
        position = self._position
        began = self._database.run_one(position.begin())
        if began.done:
            return
        pending, after = 0, began.cursor
        for item, cursor in self._reader.read(began.cursor):
            yield item
            pending, after = pending + 1, cursor
            if pending >= self._every or position.is_to_stop:
                position.advanced(self._database.run_one(position.advance(after, pending)))
                pending = 0
                position.check_stop()
        position.advanced(self._database.run_one(position.finish(after, pending)))

    def batches(self) -> Iterator[SyncBatch[T]]:
        """Yield batches of `commit_every` items. A batch without `transaction()` is committed when its block ends."""
        position = self._position
        began = self._database.run_one(position.begin())
        if began.done:
            return
        items: list[T] = []
        for item, cursor in self._reader.read(began.cursor):
            items.append(item)
            if len(items) >= self._every:
                batch, items = SyncBatch(items, cursor, position, self._database), []
                yield batch
                self._commit(batch)
                position.check_stop()
        if items:
            batch = SyncBatch(items, cursor, position, self._database)
            yield batch
            self._commit(batch)
        position.advanced(self._database.run_one(position.finish(position.cursor.cursor, 0)))

    def _commit(self, batch: SyncBatch[T]) -> None:
        if batch.check_end():
            self._position.advanced(self._database.run_one(self._position.advance(batch.cursor, len(batch.items))))


def continued(ending: Ending) -> ReleasedAttempt:
    """Return what an attempt that advanced counts as, when a timeout or a crash ended it."""
    reason = ending.reason if isinstance(ending, CrashedAttempt) else str(ending)
    return ReleasedAttempt(f"{reason}; its iteration had advanced, and continues")


async def without_charge(database: Database, job: ClaimedJob, ending: Ending) -> Ending:
    """Return the ending of an isolated attempt that was killed, or a release if it had advanced an iteration."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT):
            is_free = await database.arun_one(has_advanced(job.id, job.attempt))
    except (TimeoutError, SerenoError, psycopg.Error):
        return ending
    return continued(ending) if is_free else ending
