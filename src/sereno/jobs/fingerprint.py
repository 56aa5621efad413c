r"""Fingerprints group equal failures: a short hash of the task, the error type, its message and where it was raised.

    KeyError("order 4711 of r42@shop.example")  ▶  KeyError, order <id> of <mail>, shop.py:charge  ▶  3fa9c01b77d2

Ids, numbers, addresses and quoted values differ between failures of one kind, so they are replaced by placeholders.
The place where an error was raised is the last frame of its traceback in application code: not in Python, in an
installed package or in sereno.
"""

import hashlib
import re

from sereno.error_text import FailureText, storable
from sereno.jobs.attempt import Settlement

# Characters: of a message that are read, of the normalised message that are hashed, of the message that is shown, and
# of an error type.
READ_LIMIT = 1000
HASHED_LIMIT = 200
MESSAGE_LIMIT = 500
NAME_LIMIT = 200
# Hexadecimal digits of a fingerprint.
DIGITS = 12

# Applied in this order. Every repetition is bounded, so that no message takes long to match. A number in one failure
# may be a word with letters in the next, so both become <id>.
_PLACEHOLDERS = tuple(
    (re.compile(pattern), placeholder)
    for pattern, placeholder in (
        # Keep the host of a URL: it tells which service failed.
        (r"\b([A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/?#\"'<>]{1,200})[^\s\"'<>]{0,1000}", r"\1/<path>"),
        (r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}", "<mail>"),
        # An apostrophe within a word starts no quotation.
        (r"(?<!\w)(?:\"[^\"\n]{0,1000}\"|'[^'\n]{0,1000}'|`[^`\n]{0,1000}`)", "<text>"),
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
        (r"\b0[xX][0-9a-fA-F]{1,64}\b", "<id>"),
        (r"\b(?=[0-9]{0,200}[a-fA-F])[0-9a-fA-F]{16,200}\b", "<id>"),
        # Letters and digits in one word: an order number ORD-12ab, a hash, a token.
        (r"\b(?=[\w-]{0,100}[0-9])(?=[\w-]{0,100}[A-Za-z_])[\w-]{6,200}", "<id>"),
        (r"(?:(?<!\w)[-+])?[0-9]{1,1000}(?:[.,:][0-9]{1,1000})*", "<id>"),
        (r"\s{1,1000}", " "),
    )
)


def failure(task: str, decision: Settlement) -> FailureText | None:
    """Return the failure; None if the attempt succeeded, snoozed, was released or was cancelled."""
    if decision.outcome not in ("retry", "crash", "dead"):
        return None
    error = decision.error
    if error is None:
        # Dead by the handler's own decision, or a crash. The crash reason holds a count, so it is not hashed.
        is_crash = decision.outcome == "crash" or decision.crashed > 0
        message = storable(decision.reason or "", READ_LIMIT)
        return _of(task, "Crash" if is_crash else "Dead", message, "", "" if is_crash else message)
    message = error.message[:READ_LIMIT]
    return _of(task, error.kind[:NAME_LIMIT] or "Error", message, error.frame, message)


def normalised(message: str) -> str:
    """Return the message with ids, numbers, addresses and quoted values replaced by placeholders."""
    text = message[:READ_LIMIT]
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return text.strip()[:HASHED_LIMIT]


def _of(task: str, error_type: str, message: str, frame: str, hashed_text: str) -> FailureText:
    parts = (task, error_type, normalised(hashed_text), frame)
    hashed = hashlib.blake2b("\x00".join(parts).encode("utf-8", "replace"), digest_size=DIGITS // 2)
    return FailureText(hashed.hexdigest(), task, error_type, message[:MESSAGE_LIMIT], frame)
