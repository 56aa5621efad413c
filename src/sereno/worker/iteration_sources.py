"""What `ctx.iterate` iterates over: a keyset query, the lines of a file, a list, or your own generator with a cursor.

Each becomes pairs of an item and the cursor after it. A cursor is JSON, and a new attempt starts its source with it.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, TypeAlias, TypeVar

from psycopg.rows import dict_row

from sereno.database.database import Database
from sereno.errors import ConfigurationError

T = TypeVar("T")

# Bytes of a file that are read at once in async handlers.
CHUNK = 65536


class CursorSource(ABC, Generic[T]):
    """A source with a cursor, which is None at the beginning. `limit`: how many items are committed together."""

    __slots__ = ()

    @abstractmethod
    def pairs(self, database: Database, cursor: Any, limit: int) -> Iterator[tuple[T, Any]]:
        """Return each item with the cursor after it."""

    @abstractmethod
    def apairs(self, database: Database, cursor: Any, limit: int) -> AsyncIterator[tuple[T, Any]]:
        """`pairs` for async code."""


@dataclass(frozen=True, slots=True)
class Keyset(CursorSource[dict[str, Any]]):
    """Rows of a query, page by page: `select id, name from users where id > %(cursor)s order by id limit %(limit)s`.

    `column`: what the rows are ordered by, unique and in the result. `start`: less than its first value. `params`:
    further parameters. `%(limit)s` is `commit_every`. Rows are dictionaries.
    """

    query: str
    column: str = "id"
    start: Any = 0
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "%(cursor)s" not in self.query:
            raise ConfigurationError(f"Keyset: the query needs `{self.column} > %(cursor)s`, to continue after a row")

    def pairs(self, database: Database, cursor: Any, limit: int) -> Iterator[tuple[dict[str, Any], Any]]:
        """Return the pairs. No connection is held while the caller handles a page."""
        cursor = self.start if cursor is None else cursor
        while True:
            with database.connection() as connection, connection.cursor(row_factory=dict_row) as opened:
                rows = opened.execute(self.query.encode(), self._values(cursor, limit)).fetchall()
            if not rows:
                return
            yield from ((row, self._cursor(row)) for row in rows)
            cursor = self._next(cursor, rows)

    async def apairs(self, database: Database, cursor: Any, limit: int) -> AsyncIterator[tuple[dict[str, Any], Any]]:
        """`pairs` for async code."""
        cursor = self.start if cursor is None else cursor
        while True:
            async with database.aconnection() as connection, connection.cursor(row_factory=dict_row) as opened:
                rows = await (await opened.execute(self.query.encode(), self._values(cursor, limit))).fetchall()
            if not rows:
                return
            for row in rows:
                yield row, self._cursor(row)
            cursor = self._next(cursor, rows)

    def _values(self, cursor: Any, limit: int) -> dict[str, Any]:
        return {**self.params, "cursor": cursor, "limit": limit}

    def _cursor(self, row: Mapping[str, Any]) -> Any:
        if row.get(self.column) is None:
            raise ConfigurationError(
                f"Keyset: a row has no {self.column}: select it, and exclude rows where it is null"
            )
        return row[self.column]

    def _next(self, cursor: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
        after = self._cursor(rows[-1])
        if after == cursor:
            raise ConfigurationError(
                f"Keyset: a page ends at {self.column} {cursor!r}, where it began: "
                f"the query needs `{self.column} > %(cursor)s` and `order by {self.column}`"
            )
        return after


@dataclass(frozen=True, slots=True)
class Lines(CursorSource[str]):
    """The lines of a text file, without their ends. The cursor is a byte offset, so the file must not change."""

    path: str | os.PathLike[str]
    encoding: str = "utf-8"

    def pairs(self, database: Database, cursor: Any, limit: int) -> Iterator[tuple[str, int]]:  # noqa: ARG002 - a file needs none
        """Return each line with the offset after it."""
        with self._open(cursor) as opened:
            offset = opened.tell()
            for line in opened:
                offset += len(line)
                yield self._text(line), offset

    async def apairs(self, database: Database, cursor: Any, limit: int) -> AsyncIterator[tuple[str, int]]:  # noqa: ARG002 - as above
        """`pairs` for async code: the file is read in a thread."""
        opened = await asyncio.to_thread(self._open, cursor)
        with opened:
            offset = opened.tell()
            while lines := await asyncio.to_thread(opened.readlines, CHUNK):
                for line in lines:
                    offset += len(line)
                    yield self._text(line), offset

    def _open(self, cursor: Any) -> IO[bytes]:
        offset = cursor or 0
        if Path(self.path).stat().st_size < offset:
            raise ConfigurationError(f"Lines: {self.path} is shorter than the {offset:,} bytes that were read before")
        opened = Path(self.path).open("rb")  # noqa: SIM115 - the caller closes it
        opened.seek(offset)
        return opened

    def _text(self, line: bytes) -> str:
        return line.decode(self.encoding).removesuffix("\n").removesuffix("\r")


# A function of the cursor (None at the beginning) that returns items, each with the cursor after it.
CursorFunction: TypeAlias = Callable[[Any], Iterator[tuple[T, Any]] | AsyncIterator[tuple[T, Any]]]
Source: TypeAlias = CursorSource[T] | Sequence[T] | CursorFunction[T]


@dataclass(frozen=True, slots=True)
class SourceReader(Generic[T]):
    """Reads a source from a cursor on."""

    source: Source[T]
    database: Database
    limit: int

    def __post_init__(self) -> None:
        source = self.source
        is_known = isinstance(source, CursorSource | Sequence) or callable(source)
        if not is_known or isinstance(source, str | bytes):
            raise ConfigurationError(
                f"ctx.iterate: {type(source).__name__} is no source: give a Keyset, Lines, a list, "
                "or a function of the cursor that yields (item, cursor)"
            )

    def read(self, cursor: Any) -> Iterator[tuple[T, Any]]:
        source = self.source
        if isinstance(source, CursorSource):
            return source.pairs(self.database, cursor, self.limit)
        if isinstance(source, Sequence):
            return _indexed(source, cursor)
        pairs = source(cursor)
        if not isinstance(pairs, Iterator):
            raise ConfigurationError("ctx.run_iterate: its source is async: write an async task, and use ctx.iterate")
        return pairs

    async def aread(self, cursor: Any) -> AsyncGenerator[tuple[T, Any], None]:
        """Yield the pairs of a source, sync or async; close its generator at the end."""
        async with AsyncExitStack() as stack:
            pairs = self._apairs(cursor)
            if isinstance(pairs, AsyncIterator):
                if isinstance(pairs, AsyncGenerator):
                    await stack.enter_async_context(aclosing(pairs))
                async for pair in pairs:
                    yield pair
            else:
                if isinstance(pairs, Generator):
                    stack.enter_context(closing(pairs))
                for pair in pairs:
                    yield pair

    def _apairs(self, cursor: Any) -> Iterator[tuple[T, Any]] | AsyncIterator[tuple[T, Any]]:
        source = self.source
        if isinstance(source, CursorSource):
            return source.apairs(self.database, cursor, self.limit)
        return _indexed(source, cursor) if isinstance(source, Sequence) else source(cursor)


def _indexed(items: Sequence[T], cursor: Any) -> Iterator[tuple[T, int]]:
    for index in range(cursor or 0, len(items)):
        yield items[index], index + 1
