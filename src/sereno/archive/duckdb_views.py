# ruff: noqa: S608 - names are quoted, a query is parsed before it runs, and DuckDB can access nothing but its files
"""SQL queries of archived rows, run by DuckDB on the files themselves.

A query reads the listed files and nothing else: no other path, no network, no extension, no writes. It is one
statement; its memory is limited, and what does not fit is spilled to a directory of its own.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sereno.archive.scratch import scratch
from sereno.archive.storage import Storage
from sereno.archive.storage_files import PROTOCOL, readable
from sereno.errors import ArchiveUnavailable, ConfigurationError, InvalidArguments

T = TypeVar("T")

# DuckDB's memory limit.
MEMORY = "1GB"
# Limit of what is spilled to disk.
SPILL = "20GB"
# Rows per fetch.
FETCHED = 2000

_NO_UTF8 = "Invalid string encoding found in Parquet file"
# Characters that DuckDB reads as a glob pattern.
_PATTERN = re.compile(r"[*?\[\]{}]")
_DECIMAL = re.compile(r"numeric\((\d+),(\d+)\)")
_WIDEST_DECIMAL = 38
# Texts, so that their contents are skipped; and what DuckDB writes for floats that are not numbers.
_NO_NUMBER = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?(?:NaN|Infinity)')
_TYPES = {"jsonb": "json", "json": "json", "uuid": "uuid", "numeric": "double"}


@dataclass(frozen=True, slots=True)
class ArchiveView:
    """A kind with its files (size, batch). `types`: in PostgreSQL; `doubled`: keys that may be in two files."""

    schema: str | None
    name: str
    objects: Mapping[str, tuple[int, int]]
    key_columns: Sequence[str]
    time_column: str
    types: Mapping[str, str]
    doubled: Sequence[str]
    from_at: datetime | None = None
    to_at: datetime | None = None


class QueryRows:
    """DuckDB over some views, for one command: `with QueryRows(place, views) as rows: …`."""

    def __init__(
        self,
        place: Storage,
        views: Sequence[ArchiveView],
        *,
        target: Path | None = None,
        memory: str = MEMORY,
        spill: str = SPILL,
    ) -> None:
        """`target`: a file to which rows are written as archived; queries are not possible then.

        In query results, numbers, JSON and UUIDs have their types, where the files hold texts.
        """
        self._place = place
        self._views = views
        self._target = target
        self._memory, self._spill = memory, spill
        self._thread = ThreadPoolExecutor(1)
        self._directories = ExitStack()
        self._duckdb = _imported()
        self._files = readable(place, {name: size for view in views for name, (size, _) in view.objects.items()})
        self._connection: Any = None

    def __enter__(self) -> Self:
        self._connection = self._duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "max_temp_directory_size": self._spill,
                "memory_limit": self._memory,
                "temp_directory": str(self._directories.enter_context(scratch("query"))),
            },
        )
        try:
            self._connection.register_filesystem(self._files)
            paths = [self._path(name) for view in self._views for name in view.objects]
            paths += [] if self._target is None else [str(self._target)]
            self._do(f"set allowed_paths = {_list(paths)}")
            self._do("set enable_external_access = false")
            if self._target is not None:
                # One thread keeps the rows in the order of the files.
                self._do("set timezone = 'UTC'")
                self._do("set threads = 1")
            self._make_all()
            self._do("set lock_configuration = true")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._connection.close()
        self._directories.close()

    def texts(self, question: str) -> tuple[list[str], Iterator[tuple[str | None, ...]]]:
        """Return the names of the columns, and the rows with each value as text."""
        found = self._do(f"select columns(*)::varchar from (\n{self._one_query(question)}\n) as question")
        return [column[0] for column in found.description], self._rows(found)

    def lines(self, question: str) -> Iterator[str]:
        """Yield each row as a JSON object."""
        found = self._do(f"select to_json(question) from (\n{self._one_query(question)}\n) as question")
        for row in self._rows(found):
            yield _strict(row[0])

    def write(self, view: ArchiveView, options: str) -> int:
        """Write all rows of a view to the target. Return how many."""
        rows = self._do(f"copy (from {_named(view)}) to {_text(str(self._target))} (use_tmp_file false, {options})")
        return int(rows.fetchone()[0])

    def _one_query(self, question: str) -> str:
        """Return the query if it is a single select: other statements of DuckDB are not allowed."""
        with self._trouble():
            statements = self._connection.extract_statements(question)
        if len(statements) != 1 or statements[0].type != self._duckdb.StatementType.SELECT:
            raise InvalidArguments("a query must be a single select")
        return str(statements[0].query).strip().rstrip(";")

    def _make_all(self) -> None:
        try:
            for number, view in enumerate(self._views):
                self._make(view, number)
        except InvalidArguments as error:
            # No query has run yet: the error is the archive's.
            raise ArchiveUnavailable(f"the archive cannot be opened: {error}; see sereno archive verify") from None

    def _make(self, view: ArchiveView, number: int) -> None:
        paths = _list([self._path(name) for name in view.objects])
        files = f"read_parquet({paths}, union_by_name = true, filename = 'sereno_file')"
        described = self._do(f"describe select * from {files}").fetchall()
        columns = {row[0]: row[1] for row in described if row[0] != "sereno_file"}
        shown = ", ".join(self._shown(view, name, kind) for name, kind in columns.items())
        if view.schema is not None:
            self._do(f"create schema if not exists {_quoted(view.schema)}")
        span = _span(view, columns)
        if not view.doubled:
            self._do(f"create view {_named(view)} as select {shown} from {files} where {span}")
            return
        self._do("create schema if not exists beside_the_views")
        doubled, batches = f"beside_the_views.doubled_{number}", f"beside_the_views.batches_{number}"
        self._do(f"create table {doubled} as select unnest(?::varchar[]) as key", [list(view.doubled)])
        facts = [(self._path(name), batch) for name, (_, batch) in view.objects.items()]
        self._do(
            f"create table {batches} as select unnest(?::varchar[]) as file, unnest(?::bigint[]) as sereno_batch",
            [[path for path, _ in facts], [batch for _, batch in facts]],
        )
        key = " || chr(9) || ".join(_key(name, columns[name]) for name in view.key_columns)
        self._do(
            f"create view {_named(view)} as "
            f"with every as (select *, {key} as sereno_key from {files}), newest as ("
            f"select *, null as file, null as sereno_batch from every where sereno_key not in (from {doubled}) "
            f"union all "
            f"select * from every join {batches} on file = sereno_file where sereno_key in (from {doubled}) "
            f"qualify row_number() over (partition by sereno_key order by sereno_batch desc) = 1) "
            f"select {shown} from newest where {span}"
        )

    def _shown(self, view: ArchiveView, name: str, kind: str) -> str:
        column, made = _quoted(name), view.types.get(name, "")
        decimal = _DECIMAL.fullmatch(made)
        if self._target is not None or kind != "VARCHAR":
            return column
        if decimal and int(decimal[1]) <= _WIDEST_DECIMAL:
            # A decimal in DuckDB has no NaN; PostgreSQL's numeric has one.
            return f"try_cast(nullif({column}, 'NaN') as decimal({decimal[1]}, {decimal[2]})) as {column}"
        wanted = "double" if decimal else _TYPES.get(made)
        if wanted == "json":
            # A text that is not valid JSON is shown as text: a cast would fail the whole query.
            return f"case when json_valid({column}) then {column}::json else to_json({column}) end as {column}"
        return column if wanted is None else f"try_cast({column} as {wanted}) as {column}"

    def _path(self, name: str) -> str:
        """Return a path: DuckDB reads local files itself, others through the storage."""
        if self._place.local is not None and not _PATTERN.search(str(self._place.local)):
            return str(self._place.local / name)
        return f"{PROTOCOL}://{name}"

    def _do(self, sql: str, params: Sequence[Any] | None = None) -> Any:
        return self._patiently(lambda: self._connection.execute(sql, params))

    def _rows(self, found: Any) -> Iterator[tuple[Any, ...]]:
        while rows := self._patiently(lambda: found.fetchmany(FETCHED)):
            yield from rows

    def _patiently(self, call: Callable[[], T]) -> T:
        """Run in a thread: DuckDB does not react to Ctrl-C while it works."""
        under_way = self._thread.submit(call)
        try:
            with self._trouble():
                return under_way.result()
        except KeyboardInterrupt:
            self._connection.interrupt()
            raise

    def _trouble(self) -> "_DuckDBError":
        return _DuckDBError(self._duckdb, self._files)


class _DuckDBError:
    """Translates DuckDB's errors."""

    def __init__(self, duckdb: Any, files: Any) -> None:
        self._duckdb = duckdb
        self._files = files

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, self._duckdb.Error):
            return
        if self._files.trouble is not None:
            raise self._files.trouble from None
        text = str(error).strip().partition("\n\nLINE ")[0].replace("\n", " ")
        if _NO_UTF8 in text:
            raise ArchiveUnavailable(
                "a text in an archived file is not UTF-8, so its column cannot be read: leave it out, or query other "
                "days; see sereno archive verify"
            ) from None
        if isinstance(error, self._duckdb.IOException):
            raise ArchiveUnavailable(f"the archive could not be read: {text:.500}") from None
        raise InvalidArguments(f"{text:.1000}") from None


def _imported() -> Any:
    try:
        import duckdb  # noqa: PLC0415 - heavy, and optional
    except ImportError as error:
        raise ConfigurationError(
            f"queries of the archive need one more package ({error.name} is missing): pip install 'sereno[query]'"
        ) from None
    return duckdb


def _strict(line: str) -> str:
    """Replace NaN and Infinity by null. Without a parser: a value may be nested too deeply for one."""
    if "NaN" not in line and "Infinity" not in line:
        return line
    return _NO_NUMBER.sub(lambda found: found[0] if found[0].startswith('"') else "null", line)


def _span(view: ArchiveView, columns: Mapping[str, str]) -> str:
    """Return the condition of the time span; a column of texts may have dates outside any calendar."""
    column, kind = _quoted(view.time_column), columns.get(view.time_column, "")
    moment = f"try_cast({column} as timestamptz)" if kind == "VARCHAR" else column
    zone = "timestamptz" if kind in ("VARCHAR", "TIMESTAMP WITH TIME ZONE") else "timestamp"
    parts = [
        f"{moment} {sign} {zone} '{at.isoformat(' ') if zone == 'timestamptz' else at.replace(tzinfo=None)}'"
        for sign, at in ((">=", view.from_at), ("<", view.to_at))
        if at is not None
    ]
    return " and ".join(parts) or "true"


def _key(name: str, kind: str) -> str:
    """Return the key as SQL's `archive_key` writes it."""
    column = _quoted(name)
    if kind.startswith("TIMESTAMP"):
        return f"epoch_us({column})::varchar"
    if kind == "DATE":
        return f"date_diff('day', date '1970-01-01', {column})::varchar"
    return f"{column}::varchar"


def _named(view: ArchiveView) -> str:
    return _quoted(view.name) if view.schema is None else f"{_quoted(view.schema)}.{_quoted(view.name)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"
