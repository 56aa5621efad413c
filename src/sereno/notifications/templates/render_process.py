"""Renders a template in a separate process, with limits on memory and CPU time.

For previews: every user who may read templates can request one, with a payload of their choice. The template has the
same budget as in a worker; what the budget does not cover ends that process and not the server. The checks of
`lint_process` run in such a process too.

    parent ──request (JSON)──▶ stdin │ python -m …render_process │ stdout ──response (JSON)──▶ parent
"""

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import msgspec

from sereno.errors import SerenoError
from sereno.notifications.event import Content, Recipient
from sereno.notifications.templates.rows import TemplatePlace
from sereno.notifications.templates.templates import StoredSource, TemplateFailed, TemplateSet

# Memory and CPU time of a render beyond the interpreter and its modules.
MEMORY_BYTES = 256 * 1024 * 1024
CPU_SECONDS = 5
# Wall-clock limit in seconds, for a busy machine; a render that hangs reaches its CPU limit long before.
LONGEST_SECONDS = 60.0
ENDED = "it takes too much memory or time, and was stopped"
# Most concurrent processes, and how many seconds one more waits for a slot.
MOST_AT_ONCE, TURN_SECONDS = 2, 10.0
# Environment variables that a child gets; the others may hold secrets of the server.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "SYSTEMROOT")

_slots = BoundedSemaphore(MOST_AT_ONCE)


# A source as it is sent: key, name, text, whether it is a file.
SentSource = tuple[tuple[str, str, str, str, str], str, str, bool]


class _RenderRequest(msgspec.Struct):
    sources: Sequence[SentSource]
    event: str
    channel: str
    payload: dict[str, Any]
    recipient: Recipient


class _RenderReply(msgspec.Struct, omit_defaults=True):
    """`content`: None without a template. `failed`: the error."""

    content: Content | None = None
    failed: str | None = None


def render_apart(
    words: TemplateSet,
    event: str,
    channel: str,
    payload: Mapping[str, Any],
    recipient: Recipient,
    *,
    seconds: float = LONGEST_SECONDS,
) -> Content | None:
    """Return what a recipient would read; None without a template. TemplateFailed as in a worker, or at a limit."""
    found = words.find(event, channel, recipient.locale, recipient.tenant)
    sources = [tuple(source) for source in _readable(words, event, found)]
    wanted = {"sources": sources, "event": event, "channel": channel, "payload": payload, "recipient": recipient}
    try:
        request = msgspec.json.encode(wanted)
    except UnicodeEncodeError:
        raise TemplateFailed(f"{event}, {channel}: a lone surrogate, which no text may contain") from None
    with turn(f"{event}, {channel}"):
        reply = _render_reply(request, f"{event}, {channel}", seconds)
    if reply.failed is not None:
        raise TemplateFailed(reply.failed)
    return reply.content


def _readable(words: TemplateSet, event: str, found: Mapping[str, StoredSource]) -> Sequence[StoredSource]:
    """Return all templates of the event, which may include each other; if one cannot be read, those that are found."""
    try:
        return words.sources(event)
    except TemplateFailed:
        return list(found.values())


@contextmanager
def turn(name: str) -> Iterator[None]:
    """Wait until fewer than MOST_AT_ONCE processes run; TemplateFailed if that takes too long."""
    if not _slots.acquire(timeout=TURN_SECONDS):
        raise TemplateFailed(f"{name}: too many previews at once, try again in a moment")
    try:
        yield
    finally:
        _slots.release()


def _render_reply(request: bytes, name: str, seconds: float) -> _RenderReply:
    try:
        ended = run_module("sereno.notifications.templates.render_process", request, seconds)
    except subprocess.TimeoutExpired:
        raise TemplateFailed(f"{name}: it takes too long: more than {seconds:g} s") from None
    if ended.returncode:
        raise TemplateFailed(f"{name}: {ENDED}")
    return msgspec.json.decode(ended.stdout, type=_RenderReply)


def run_module(module: str, request: bytes, seconds: float) -> "subprocess.CompletedProcess[bytes]":
    """Run the module as a program that reads the request. Raise subprocess.TimeoutExpired when it takes longer."""
    environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
    # The module path of this process, independent of the working directory.
    environment["PYTHONPATH"] = os.pathsep.join(str(Path(place).resolve()) for place in sys.path)
    command = [sys.executable, "-P", "-m", module]
    return subprocess.run(command, input=request, capture_output=True, timeout=seconds, env=environment, check=False)


def limit(memory: int = MEMORY_BYTES, cpu: int = CPU_SECONDS) -> None:
    """Limit the further memory in bytes and CPU time in seconds of this process; it cannot write files."""
    try:
        import resource  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    for kind, most in (
        (resource.RLIMIT_AS, _address_space() + memory),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (lowest, lowest))


def allow_cpu(seconds: int) -> None:
    """Allow this process `seconds` more of CPU time from now on; the hard limit stays."""
    try:
        import resource  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _address_space() -> int:
    """Return the size of this process in bytes; if it cannot be read, more than any interpreter uses."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 1024 * 1024 * 1024
    return pages * os.sysconf("SC_PAGESIZE")


def received(sources: Sequence[SentSource]) -> TemplateSet:
    """Return the templates of a request."""
    words = TemplateSet(None)
    words.use_sources([StoredSource(TemplatePlace(*key), name, text, is_file) for key, name, text, is_file in sources])
    return words


def main() -> None:
    """Read a request, write the response."""
    from sereno.notifications.templates import sandbox  # noqa: F401, PLC0415 - imported before there are limits

    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_RenderRequest)
    limit()
    words = received(request.sources)
    to = request.recipient
    try:
        made = words.render(request.event, request.channel, to.locale, to.tenant, request.payload, to)
        reply = msgspec.json.encode(_RenderReply(content=made))
    except MemoryError:
        reply = msgspec.json.encode(_RenderReply(failed=f"{request.event}: it takes too much memory"))
    except SerenoError as error:
        reply = msgspec.json.encode(_RenderReply(failed=str(error)))
    sys.stdout.buffer.write(reply)


if __name__ == "__main__":
    main()
