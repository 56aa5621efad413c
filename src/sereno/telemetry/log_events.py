"""Log lines with stable event names. The library only emits them; the command line configures handlers and formats.

Arguments of jobs are never logged. Fields: event, job_id, task, queue, tenant, attempt, duration_ms, session, trace_id,
span_id, error_type.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal

from sereno.error_text import class_name
from sereno.telemetry import tracing

logger = logging.getLogger("sereno")

_COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}
FIELDS = "sereno_fields"

LogForm = Literal["auto", "console", "json"]
# Whether `configure` was called: isolated processes of this one then do the same.
configured = False


def emit(level: int, event: str, message: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """Emit one log line of the engine. Errors of the application's log filters and handlers are caught here."""
    if not logger.isEnabledFor(level):
        return
    try:
        logger.log(level, message, exc_info=error, extra={"event": event, FIELDS: _without_none(fields)})
    except TimeoutError:
        # The deadline of a job, raised in its thread from outside; it must reach the handler of the job.
        raise
    except Exception as raised:  # noqa: BLE001 - logging itself treats errors of handlers the same way
        if logging.raiseExceptions and sys.stderr is not None:
            sys.stderr.write(f"sereno: a log line ({event}) was not written: {class_name(raised)}\n")


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """The logger of `ctx.log`: its lines carry the fields of the job. What the caller adds is written as it is."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(logging.getLogger("sereno.job"), _without_none(fields))

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        extra = dict(kwargs.pop("extra", None) or {})
        event = extra.pop("event", "job.log")
        return msg, {**kwargs, "extra": {"event": event, FIELDS: {**(self.extra or {}), **extra}}}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "ts": f"{stamp}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            "event": getattr(record, "event", record.name),
        }
        line.update(getattr(record, FIELDS, {}))
        if tracing.active is not None and (ids := tracing.active.span_ids()) is not None:
            _add_span(line, *ids)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def _add_span(line: dict[str, Any], trace_id: str, span_id: str) -> None:
    """Add the current span. A later attempt has a trace of its own, and is found by the one of its job too."""
    if line.setdefault("trace_id", trace_id) != trace_id:
        line["span_trace_id"] = trace_id
    line["span_id"] = span_id


class ConsoleFormatter(logging.Formatter):
    """Formats a record for a terminal: time, level, message, then the fields."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in getattr(record, FIELDS, {}).items())
        level = record.levelname.lower().ljust(7)
        if self._colour:
            level = f"{_COLOURS.get(record.levelname, '')}{level}\x1b[0m"
            fields = f"\x1b[2m{fields}\x1b[0m" if fields else ""
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{stamp} {level} {record.getMessage()}  {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class LineHandler(logging.StreamHandler[Any]):
    """Writes the lines of sereno's own processes to stderr."""


def configure(level: str, form: LogForm) -> None:
    """Configure logging. Only for sereno's own processes: a library must not configure the logging of its users.

    Handlers of the application stay. If one of them writes to the terminal, `auto` leaves the lines to it.
    """
    global configured  # noqa: PLW0603 - logging itself is set up once per process
    root = logging.getLogger()
    theirs = [handler for handler in root.handlers if not isinstance(handler, LineHandler)]
    if form != "auto":
        theirs = [handler for handler in theirs if not _is_on_terminal(handler)]
    if any(map(_is_on_terminal, theirs)):
        root.handlers[:] = theirs
    else:
        root.handlers[:] = [*theirs, _line_handler(form)]
    if not theirs:
        root.setLevel(logging.WARNING)
    logger.setLevel(level.upper())
    configured = True


def _line_handler(form: LogForm) -> LineHandler:
    terminal = sys.stderr.isatty()
    handler = LineHandler(sys.stderr)
    as_json = form == "json" or (form == "auto" and not terminal)
    handler.setFormatter(JsonFormatter() if as_json else ConsoleFormatter(colour=terminal))
    return handler


def _is_on_terminal(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.stderr)
