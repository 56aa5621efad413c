"""A traceback as pages show it: the last frame of the application's own code first, then all of it."""

import re
from typing import NamedTuple

from sereno.error_text import own_frame

_FRAME = re.compile(r'^ *File "([^"\n]{1,1000})", line ([0-9]{1,9})(?:, in (.{1,300}))?$')
# Frames of other code; the worker that wrote the traceback may have its Python elsewhere than this server.
_OTHERS = re.compile(r"[/\\](?:lib(?:64)?[/\\]python[0-9.]+|site-packages|dist-packages)[/\\]|^<")
# Lines; of a longer one the end is shown, which matters most.
MOST_LINES = 400


class OwnFrame(NamedTuple):
    """The last frame of the application's own code."""

    file: str
    line: int
    function: str
    code: str


class ParsedTraceback(NamedTuple):
    """`lines`: each with whether it belongs to the own frame."""

    own: OwnFrame | None
    lines: list[tuple[str, bool]]


def read(text: str | None) -> ParsedTraceback | None:
    """Return the parsed traceback; None without text."""
    if not text or not text.strip():
        return None
    lines = text.rstrip().splitlines()[-MOST_LINES:]
    place = max((at for at, line in enumerate(lines) if _is_own(line)), default=None)
    if place is None:
        return ParsedTraceback(None, [(line, False) for line in lines])
    end = place + 1
    while end < len(lines) and lines[end].startswith("    "):
        end += 1
    found = _FRAME.match(lines[place])
    assert found is not None
    code = lines[place + 1].strip() if end > place + 1 else ""
    own = OwnFrame(found[1], int(found[2]), found[3] or "", code)
    return ParsedTraceback(own, [(line, place <= at < end) for at, line in enumerate(lines)])


def _is_own(line: str) -> bool:
    found = _FRAME.match(line)
    if found is None or _OTHERS.search(found[1]):
        return False
    return bool(own_frame([(found[1], found[3] or "")]))
