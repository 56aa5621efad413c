"""Queries of archived rows for remote clients: `python -m sereno.archive.query`.

DuckDB runs in a process of its own, which can be killed at its time limit and has a hard memory limit; a crash does not
affect the server. `sereno.archive.duckdb_views` describes what it may read.
"""

import asyncio
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from sereno.archive.duckdb_views import ArchiveView, QueryRows
from sereno.archive.storage import Storage
from sereno.errors import ArchiveUnavailable, ConfigurationError, InvalidArguments, Refused, SerenoError

# Limits of DuckDB; and of its process as a whole, including libraries.
MEMORY, SPILL = "512MB", "2GB"
MOST_MEMORY = 4 * 1024**3
MOST_ROWS = 10_000
MOST_SECONDS = 60.0
# Bytes of all rows together.
MOST_BYTES = 8 * 1024 * 1024
# Bytes of one value, and its nesting depth; a value beyond is marked as not shown, as on other pages.
MOST_BYTES_OF_VALUE, DEEPEST = 4 * 1024 * 1024, 200
LONGEST_QUESTION = 20_000
# Texts, whose contents are skipped, and structural characters.
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]')
# CPU limit of a process that outlives the server: its seconds times this number of cores.
CORES = 4

Trouble = Literal["question", "place", "setting"]
_ERRORS: dict[Trouble, type[SerenoError]] = {
    "question": InvalidArguments,
    "place": ArchiveUnavailable,
    # The query itself is valid.
    "setting": Refused,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveQuestion:
    """One `select`, and the limits of its result."""

    address: str
    directory: str
    views: Sequence[ArchiveView]
    sql: str
    rows: int
    seconds: float


@dataclass(slots=True)
class QueryResult:
    """Each row as an object. `more`: there are further rows, or all together would be too large."""

    rows: list[dict[str, Any]]
    more: bool


class QueryTimeout(SerenoError):  # noqa: N818 - named like Refused
    """The query exceeded its time limit."""


class _QueryReply(msgspec.Struct):
    """The output of the process."""

    rows: list[msgspec.Raw] = []
    more: bool = False
    trouble: Trouble | None = None
    words: str = ""


async def ask(question: ArchiveQuestion) -> QueryResult:
    """Run a query. Raises InvalidArguments for an invalid one, Refused if a package is missing."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-m", "sereno.archive.query"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
        # Ctrl-C in a terminal reaches the whole process group, and the server handles it.
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(question.seconds):
            output, _ = await process.communicate(msgspec.json.encode(question))
    except TimeoutError:
        raise QueryTimeout(
            f"the query took longer than {question.seconds:g} s and was stopped: read fewer rows, or narrow from and to"
        ) from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode or not output:
        raise ArchiveUnavailable("the query exceeded its memory limit, or its process died: select less")
    reply = msgspec.json.decode(output, type=_QueryReply)
    if reply.trouble is not None:
        raise _ERRORS[reply.trouble](reply.words)
    return QueryResult([msgspec.json.decode(row) for row in reply.rows], reply.more)


def main() -> None:
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=ArchiveQuestion)
    _confine(question.seconds)
    try:
        reply = _run(question)
    except InvalidArguments as error:
        reply = _QueryReply(trouble="question", words=str(error))
    except ArchiveUnavailable as error:
        reply = _QueryReply(trouble="place", words=str(error))
    except ConfigurationError as error:
        reply = _QueryReply(trouble="setting", words=str(error))
    except MemoryError:
        reply = _QueryReply(trouble="question", words="the result does not fit into memory: select less")
    sys.stdout.buffer.write(msgspec.json.encode(reply))


def _confine(seconds: float) -> None:
    """Set resource limits where the system has them; elsewhere those of DuckDB and of the server apply."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    bounds = {resource.RLIMIT_AS: MOST_MEMORY, resource.RLIMIT_CPU: int(CORES * seconds) + 1, resource.RLIMIT_CORE: 0}
    for which, most in bounds.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(which, (most, most))


def _run(question: ArchiveQuestion) -> _QueryReply:
    place = Storage(question.address, question.directory)
    reply, size = _QueryReply(rows=[]), 0
    with QueryRows(place, question.views, memory=MEMORY, spill=SPILL) as rows:
        for line in rows.lines(question.sql):
            row = shown(line).encode()
            size += len(row)
            reply.more = len(reply.rows) == question.rows or size > MOST_BYTES
            if reply.more:
                break
            reply.rows.append(msgspec.Raw(row))
    return reply


def shown(line: str) -> str:
    """Return a row in which each value that is too large or too deeply nested is replaced by a mark."""
    if len(line) <= MOST_BYTES_OF_VALUE // 4 and line.count("[") + line.count("{") <= DEEPEST:
        return line
    marked = "{" + ",".join(f"{name}:{_mark(value, depth) or value}" for name, value, depth in _members(line)) + "}"
    return marked if len(marked.encode()) <= MOST_BYTES else _not_shown(f"more than {MOST_BYTES:,} bytes")


def _mark(value: str, depth: int) -> str | None:
    if depth > DEEPEST:
        return _not_shown(f"nested more than {DEEPEST} levels deep")
    size = len(value.encode())
    return _not_shown(f"{size:,} bytes") if size > MOST_BYTES_OF_VALUE else None


def _not_shown(why: str) -> str:
    return msgspec.json.encode({"not shown": why}).decode()


def _members(line: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, value and depth of each member of an object. Without a parser: nesting may be too deep for one."""
    depth = deepest = start = 0
    name = ""
    for found in _TOKENS.finditer(line):
        match found[0]:
            case "{" | "[":
                depth += 1
                deepest = max(deepest, depth - 1)
                start = start or found.end()
            case "}" | "]":
                depth -= 1
            case ":" if depth == 1:
                name, start, deepest = line[start : found.start()].strip(), found.end(), 0
        if (found[0] == "," and depth == 1) or (found[0] == "}" and depth == 0):
            if name:
                yield name, line[start : found.start()].strip(), deepest
            start = found.end()


if __name__ == "__main__":
    main()
