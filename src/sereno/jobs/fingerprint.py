r"""Which failures are the same one: a short hash of the task, the kind of error, its message and where it was raised.

    KeyError("order 4711 of r42@shop.example")  ▶  KeyError, order <id> of <mail>, shop.py:charge  ▶  3fa9c01b77d2

Ids, numbers, addresses and quoted values differ from failure to failure and say nothing about its kind, so they are
left out. Where it was raised is the last line of the traceback that is somebody's own: not of Python, of an installed
package, or of sereno.
"""

import hashlib
import re

from sereno.error_text import Failure, storable
from sereno.jobs.attempt import Settlement

# So much of a message is looked at; what it is known by, without its ids, and what people are shown are shorter.
LOOKED_AT = 1000
KNOWN_BY = 200
MESSAGE_LIMIT = 500
NAME_LIMIT = 200
DIGITS = 12

# In this order. Every repetition has an end, so that no message is slow to read. What is a number in one failure may be
# a word with letters in the next, so both are an id.
_PLACEHOLDERS = tuple(
    (re.compile(pattern), placeholder)
    for pattern, placeholder in (
        # Of a URL, who was asked is part of what happened.
        (r"\b([A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/?#\"'<>]{1,200})[^\s\"'<>]{0,1000}", r"\1/<path>"),
        (r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}", "<mail>"),
        # An apostrophe within a word opens nothing.
        (r"(?<!\w)(?:\"[^\"\n]{0,1000}\"|'[^'\n]{0,1000}'|`[^`\n]{0,1000}`)", "<text>"),
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
        (r"\b0[xX][0-9a-fA-F]{1,64}\b", "<id>"),
        (r"\b(?=[0-9]{0,200}[a-fA-F])[0-9a-fA-F]{16,200}\b", "<id>"),
        # Letters and digits in one word: an order ORD-12ab, a hash, a token.
        (r"\b(?=[\w-]{0,100}[0-9])(?=[\w-]{0,100}[A-Za-z_])[\w-]{6,200}", "<id>"),
        (r"(?:(?<!\w)[-+])?[0-9]{1,1000}(?:[.,:][0-9]{1,1000})*", "<id>"),
        (r"\s{1,1000}", " "),
    )
)


def failure(task: str, decision: Settlement) -> Failure | None:
    """What failed; None for an ending that is no failure: a success, a snooze, a job given back or cancelled."""
    if decision.outcome not in ("retry", "crash", "dead"):
        return None
    error = decision.error
    if error is None:
        # The handler's own word, or a process that died. How often it died is no part of what happened.
        is_crash = decision.outcome == "crash" or decision.crashed > 0
        said = storable(decision.reason or "", LOOKED_AT)
        return _of(task, "Crash" if is_crash else "Dead", said, "", "" if is_crash else said)
    said = error.message[:LOOKED_AT]
    return _of(task, error.kind[:NAME_LIMIT] or "Error", said, error.frame, said)


def normalised(message: str) -> str:
    """The message without what differs from one failure of a kind to the next."""
    text = message[:LOOKED_AT]
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return text.strip()[:KNOWN_BY]


def _of(task: str, error_type: str, said: str, frame: str, known_by: str) -> Failure:
    parts = (task, error_type, normalised(known_by), frame)
    hashed = hashlib.blake2b("\x00".join(parts).encode("utf-8", "replace"), digest_size=DIGITS // 2)
    return Failure(hashed.hexdigest(), task, error_type, said[:MESSAGE_LIMIT], frame)
