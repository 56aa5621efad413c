"""Converts exceptions to plain text that can be stored, logged and counted.

A handler may raise anything: `__str__`, the class name or the formatting of the traceback can raise in turn, even a
BaseException. `describe` is called where the attempt ends and never raises; later code handles exact text only.
"""

import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

# Characters. The end of a longer traceback is stored: it has the innermost frames and the message.
TRACEBACK_LIMIT = 16_000
MESSAGE_LIMIT = 4_000
FRAME_LIMIT = 200
# Characters of a text that is shown on one line.
LINE_LIMIT = 500
# Frames of one traceback that are read at most; and the longest chain of causes that is formatted.
DEEPEST_TRACEBACK = 10_000
LONGEST_CHAIN = 100

_CONTROL = dict.fromkeys((*range(1, 32), 127), " ")
_SLASH = re.compile(r"[/\\]")
_INSTALLED = ("/site-packages/", "/dist-packages/")
_OURS = str(Path(__file__).parent) + "/"
_PYTHON = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})

# Accessors that bypass attributes and properties which a class or a metaclass may override.
_qualified_name = type.__dict__["__qualname__"].__get__
_traceback_of = BaseException.__dict__["__traceback__"].__get__
_cause_of = BaseException.__dict__["__cause__"].__get__
_context_of = BaseException.__dict__["__context__"].__get__


class ErrorText(NamedTuple):
    """One exception: its class, message and traceback, and the frame it came from, such as `shop.py:charge`."""

    kind: str
    message: str
    traceback: str = ""
    frame: str = ""

    @property
    def name(self) -> str:
        """Return the class name without its enclosing scopes."""
        return self.kind.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.name}({self.message!r})"


class FailureText(NamedTuple):
    """One failure with its fingerprint. `frame`: where it was raised, `shop.py:charge`; empty if unknown."""

    fingerprint: str
    task: str
    error_type: str
    message: str
    frame: str = ""


def describe(error: BaseException) -> ErrorText:
    """Return the exception as text that PostgreSQL can store. Never raises."""
    kind, message = class_name(error), storable(error)
    return ErrorText(kind, message, _traceback(error, kind, message), own_frame(frames(error)))


def storable(value: object, limit: int = MESSAGE_LIMIT) -> str:
    """Return any value as text that PostgreSQL can store: no NUL byte, no lone surrogate. Never raises."""
    try:
        # A subclass of str may override slicing.
        text = str.__getitem__(str(value), slice(limit))
    except BaseException:  # noqa: BLE001 - no value may keep the job from settling
        text = f"(a {class_name(value)} that cannot be converted to text)"[:limit]
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Return `storable` text without control characters, which would break a line of a log or a terminal."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    return storable(text, limit).translate(_CONTROL)


def class_name(value: object) -> str:
    """Return the qualified name of the value's class. Never raises, whatever its metaclass does."""
    name: str = str.__getitem__(_qualified_name(type(value)), slice(MESSAGE_LIMIT))
    return name.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def own_frame(stack: Iterable[tuple[str, str]]) -> str:
    """Return the last frame (file, function) in application code, as `shop.py:charge`."""
    last = ""
    for file, function in stack:
        if _is_own(file):
            last = f"{_SLASH.split(file)[-1]}:{function}"
    return storable(last, FRAME_LIMIT)


def frames(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield file and function of each frame of the traceback, the outermost first."""
    for step in _steps(error):
        code = step.tb_frame.f_code
        yield code.co_filename, code.co_name


def _steps(error: BaseException) -> Iterator[TracebackType]:
    step: TracebackType | None = _traceback_of(error)
    left = DEEPEST_TRACEBACK
    while step is not None and left:
        yield step
        step, left = step.tb_next, left - 1


def _traceback(error: BaseException, kind: str, message: str) -> str:
    """Return the end of the formatted traceback; only the frames if Python cannot format it."""
    if _traceback_of(error) is None:
        return ""
    try:
        text = "".join(traceback.format_exception(error, chain=_has_short_chain(error)))
    except BaseException:  # noqa: BLE001 - a SyntaxError with an odd offset, notes that are not a list, deep recursion
        lines = [
            f'  File "{step.tb_frame.f_code.co_filename}", line {step.tb_lineno}, in {step.tb_frame.f_code.co_name}\n'
            for step in _steps(error)
        ]
        text = f"Traceback (most recent call last):\n{''.join(lines)}{kind}: {message}\n"
    return storable(text[-TRACEBACK_LIMIT:], TRACEBACK_LIMIT)


def _has_short_chain(error: BaseException) -> bool:
    step: BaseException | None = error
    for _ in range(LONGEST_CHAIN):
        step = _cause_of(step) or _context_of(step)
        if step is None:
            return True
    return False


def _is_own(file: str) -> bool:
    name = file.replace("\\", "/")
    if name.startswith("<") or any(place in name for place in _INSTALLED):
        return False
    return not name.startswith((_OURS, *_PYTHON))
