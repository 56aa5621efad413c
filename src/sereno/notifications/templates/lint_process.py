"""Checks templates in a process with the limits of `render_process`: their sources are untrusted.

    parent ──request (JSON)──▶ stdin │ python -m …lint_process │ stdout ──a line for each event──▶ parent

If a process is stopped, the event that it was checking took too much: that event gets a finding, and another process
continues with the next one.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from sereno.notifications.templates.lint import DeclaredEvent, LintFinding, lint_event, of_strangers
from sereno.notifications.templates.render_process import (
    CPU_SECONDS,
    ENDED,
    LONGEST_SECONDS,
    SentSource,
    allow_cpu,
    limit,
    received,
    run_module,
    turn,
)
from sereno.notifications.templates.templates import (
    StoredSource,
    TemplateFailed,
    TemplateSet,
    compiled,
    forget_compiled,
)

# For all templates together; a single one has the CPU time of a preview.
MOST_CPU_SECONDS = 3600


class _LintRequest(msgspec.Struct, tag=True):
    """`wanted`: the events to check, in this order. `cpu_seconds`: for each template, and for each message."""

    wanted: Sequence[str]
    sources: Sequence[SentSource]
    events: Mapping[str, DeclaredEvent] | None
    largest: Mapping[str, int]
    payloads: Mapping[str, Mapping[str, Any]]
    cpu_seconds: int


class _CompileRequest(msgspec.Struct, tag=True):
    name: str
    text: str
    is_html: bool


class _LintReply(msgspec.Struct):
    """`lines`: what the process wrote before it ended, reached a limit, or timed out."""

    lines: Sequence[bytes]
    is_late: bool
    is_failed: bool


def lint_apart(
    templates: TemplateSet,
    events: Mapping[str, DeclaredEvent] | None = None,
    largest: Mapping[str, int] | None = None,
    payloads: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    seconds: float = LONGEST_SECONDS,
    cpu_seconds: int = CPU_SECONDS,
) -> list[LintFinding]:
    """Return what `lint` finds. TemplateFailed when too many of these processes run already."""
    found, sources = of_strangers(templates), dict[str, list[StoredSource]]()
    for event in templates.events():
        try:
            sources[event] = templates.sources(event)
        except TemplateFailed as error:
            found.append(LintFinding("error", "files", str(error)))
    left, deadline = list(sources), time.monotonic() + seconds
    while left:
        sent = [(each.key, each.name, each.text, each.is_file) for event in left for each in sources[event]]
        known = {event: payload for event, payload in (payloads or {}).items() if event in left}
        request = _LintRequest(left, sent, events, largest or {}, known, cpu_seconds)
        ended = _run("templates", request, deadline - time.monotonic())
        for line in ended.lines:
            found += msgspec.json.decode(line, type=list[LintFinding])
        left = left[len(ended.lines) :]
        if left and ended.is_late:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            return [
                *found,
                LintFinding("error", f"{left[0]}{more}", f"not checked: the checks took more than {seconds:g} s"),
            ]
        if left and ended.is_failed:
            found.append(LintFinding("error", left.pop(0), ENDED))
    return found


def compile_apart(name: str, text: str, *, is_html: bool, seconds: float = LONGEST_SECONDS) -> None:
    """Raise TemplateFailed if the text cannot be compiled within the limits."""
    ended = _run(name, _CompileRequest(name, text, is_html), seconds)
    if ended.is_late or ended.is_failed:
        raise TemplateFailed(f"{name}: {ENDED}")
    for line in ended.lines:
        raise TemplateFailed(msgspec.json.decode(line, type=str))


def _run(name: str, request: _LintRequest | _CompileRequest, seconds: float) -> _LintReply:
    try:
        sent = msgspec.json.encode(request)
    except UnicodeEncodeError:
        raise TemplateFailed(f"{name}: a lone surrogate, which no text may contain") from None
    with turn(name):
        try:
            ended = run_module("sereno.notifications.templates.lint_process", sent, max(seconds, 0.0))
        except subprocess.TimeoutExpired as late:
            return _LintReply(_lines(late.output or b""), is_late=True, is_failed=False)
    return _LintReply(_lines(ended.stdout), is_late=False, is_failed=ended.returncode != 0)


def _lines(written: bytes) -> Sequence[bytes]:
    """Return complete lines: the last may have been cut off."""
    return written.split(b"\n")[:-1]


def main() -> None:
    """Read a request; write a line of findings per event, or the error of a source."""
    from sereno.notifications.templates import sandbox  # noqa: F401, PLC0415 - imported before there are limits

    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_LintRequest | _CompileRequest)
    limit(cpu=MOST_CPU_SECONDS)
    match request:
        case _CompileRequest(name, text, is_html):
            allow_cpu(CPU_SECONDS)
            try:
                compiled(name, text, is_html=is_html)
            except TemplateFailed as error:
                _write(str(error))
        case _LintRequest():
            words, known = received(request.sources), request.payloads
            more_cpu = partial(allow_cpu, request.cpu_seconds)
            for event in request.wanted:
                _write(lint_event(words, event, request.events, request.largest, known.get(event), more_cpu))
                forget_compiled()


def _write(answer: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
