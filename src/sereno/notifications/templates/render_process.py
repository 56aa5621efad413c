"""Renders a template in a process of its own, with limits on memory and CPU time.

For previews: anybody who may look at templates can ask for one, with a payload of their choice. A template spends from
the same budget there as in a worker; whatever the budget does not see ends that process and not the server. The checks
of `lint_process` run in such a process too.

    parent ──request (JSON)──▶ stdin │ python -m …render_process │ stdout ──answer (JSON)──▶ parent
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
from sereno.notifications.templates.templates import Key, Source, TemplateFailed, TemplateSet

# What a render may take beyond the interpreter and the modules that it needs.
MEMORY_BYTES = 256 * 1024 * 1024
CPU_SECONDS = 5
# For a machine that is busy; a render that is stuck has used its CPU time long before.
LONGEST_SECONDS = 60.0
ENDED = "it takes too much memory or time, and was ended"
# Processes at once, and how long one more waits for its turn.
MOST_AT_ONCE, TURN_SECONDS = 2, 10.0
# A child gets no other variable: those of the server hold its secrets.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "SYSTEMROOT")

_send_jobs = BoundedSemaphore(MOST_AT_ONCE)


# A source as it travels: key, name, text, whether it is a file.
SentSource = tuple[tuple[str, str, str, str, str], str, str, bool]


class _Request(msgspec.Struct):
    sources: Sequence[SentSource]
    event: str
    channel: str
    payload: dict[str, Any]
    recipient: Recipient


class _Answer(msgspec.Struct, omit_defaults=True):
    """`content`: None without words. `failed`: why there is none."""

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
    """What a recipient would read; None without words. TemplateFailed as in a worker, or when a limit is reached."""
    found = words.find(event, channel, recipient.locale, recipient.tenant)
    sources = [tuple(source) for source in _readable(words, event, found)]
    wanted = {"sources": sources, "event": event, "channel": channel, "payload": payload, "recipient": recipient}
    try:
        request = msgspec.json.encode(wanted)
    except UnicodeEncodeError:
        raise TemplateFailed(f"{event}, {channel}: half of a character, which no text may hold") from None
    with turn(f"{event}, {channel}"):
        answer = _answered(request, f"{event}, {channel}", seconds)
    if answer.failed is not None:
        raise TemplateFailed(answer.failed)
    return answer.content


def _readable(words: TemplateSet, event: str, found: Mapping[str, Source]) -> Sequence[Source]:
    """All of the event: they may include each other. Where one cannot be read, those that are needed for sure."""
    try:
        return words.sources(event)
    except TemplateFailed:
        return list(found.values())


@contextmanager
def turn(name: str) -> Iterator[None]:
    """Wait until fewer than MOST_AT_ONCE of these processes run; TemplateFailed if that takes too long."""
    if not _send_jobs.acquire(timeout=TURN_SECONDS):
        raise TemplateFailed(f"{name}: too many previews at once, try again in a moment")
    try:
        yield
    finally:
        _send_jobs.release()


def _answered(request: bytes, name: str, seconds: float) -> _Answer:
    try:
        ended = run_module("sereno.notifications.templates.render_process", request, seconds)
    except subprocess.TimeoutExpired:
        raise TemplateFailed(f"{name}: it takes too long: more than {seconds:g} s") from None
    if ended.returncode:
        raise TemplateFailed(f"{name}: {ENDED}")
    return msgspec.json.decode(ended.stdout, type=_Answer)


def run_module(module: str, request: bytes, seconds: float) -> "subprocess.CompletedProcess[bytes]":
    """Run the module as a program that reads the request. subprocess.TimeoutExpired when it takes longer."""
    environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
    # As this process finds its modules, whatever directory it was started in.
    environment["PYTHONPATH"] = os.pathsep.join(str(Path(place).resolve()) for place in sys.path)
    command = [sys.executable, "-P", "-m", module]
    return subprocess.run(command, input=request, capture_output=True, timeout=seconds, env=environment, check=False)


def limit(memory: int = MEMORY_BYTES, cpu: int = CPU_SECONDS) -> None:
    """From now on, this process may take so much more memory and so many seconds of CPU time, and writes no file."""
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
    """From now on, so many seconds of CPU time beside those that this process has used; the hard limit stays."""
    try:
        import resource  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _address_space() -> int:
    """Of this process, in bytes; where it cannot be read, more than any interpreter takes."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 1024 * 1024 * 1024
    return pages * os.sysconf("SC_PAGESIZE")


def received(sources: Sequence[SentSource]) -> TemplateSet:
    """The templates of a request."""
    words = TemplateSet(None)
    words.use_sources([Source(Key(*key), name, text, is_file) for key, name, text, is_file in sources])
    return words


def main() -> None:
    """Read a request, write the answer."""
    from sereno.notifications.templates import sandbox  # noqa: F401, PLC0415 - imported before there are limits

    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_Request)
    limit()
    words = received(request.sources)
    to = request.recipient
    try:
        made = words.render(request.event, request.channel, to.locale, to.tenant, request.payload, to)
        answer = msgspec.json.encode(_Answer(content=made))
    except MemoryError:
        answer = msgspec.json.encode(_Answer(failed=f"{request.event}: it takes too much memory"))
    except SerenoError as error:
        answer = msgspec.json.encode(_Answer(failed=str(error)))
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
