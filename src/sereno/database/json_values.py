"""Values as PostgreSQL keeps them: JSON, never pickles, and nothing that would come back as something else."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from sereno.error_text import storable


def plain_datetime(value: datetime) -> datetime:
    """Return the same instant as an exact `datetime` in UTC; a naive one keeps its reading of the clock.

    The subclasses of libraries (pendulum, pandas) and offsets of odd length are no JSON to the encoder.
    """
    naive = datetime(value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)  # noqa: DTZ001 - the offset follows
    offset = value.utcoffset()
    return naive if offset is None else (naive - offset).replace(tzinfo=UTC)


def _encode_other(value: Any) -> Any:
    if isinstance(value, datetime):
        return plain_datetime(value)
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


_BACKSLASH = ord("\\")
# Lists and objects inside each other, as the type sereno.bounded_json allows: no reader of them runs out of stack.
DEEPEST = 100
TOO_DEEP = f"nested more than {DEEPEST} deep"
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))

encoder = msgspec.json.Encoder(enc_hook=_encode_other)


def stored(value: Any, refusal: Callable[[str], Exception]) -> bytes:
    """Its JSON, or the refusal: no NaN, no NUL byte, no lone surrogate, not nested too deep."""
    try:
        raw = encoder.encode(value)
    except UnicodeEncodeError:
        raise refusal("text with a lone surrogate cannot be stored") from None
    except Exception as error:  # noqa: BLE001 - a model's own serializer may raise anything
        raise refusal(f"not storable as JSON: {storable(error)}") from None
    # Two brackets for each level: what is shorter need not be looked at.
    if len(raw) > 2 * DEEPEST and is_too_deep(raw):
        raise refusal(TOO_DEEP)
    try:
        _check(value, raw, refusal)
    except RecursionError:
        raise refusal(TOO_DEEP) from None
    return raw


def is_too_deep(raw: bytes) -> bool:
    """Whether so many lists and objects are inside each other, of JSON that is well-formed."""
    if raw.count(b"[") + raw.count(b"{") <= DEEPEST:
        return False
    brackets = _TEXTS.sub(b"", raw).translate(_BRACKETS, _OTHERS)
    for _ in range(DEEPEST):
        # Each round takes away the innermost of all.
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def _check(value: Any, raw: bytes, refusal: Callable[[str], Exception]) -> None:
    # msgspec writes NaN as null and NUL as an escape; both are rare: look closer only where the bytes hint at it.
    if b"null" in raw and _has_nan(msgspec.to_builtins(value, enc_hook=_encode_other)):
        raise refusal("NaN and infinity are not JSON")
    # A backslash alone is found five times as fast as the whole escape.
    if _BACKSLASH in raw and b"\\u0000" in raw and _has_nul(msgspec.json.decode(raw)):
        raise refusal("text with a NUL byte cannot be stored in PostgreSQL")


def _has_nan(value: Any) -> bool:
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(map(_has_nan, value.values())) or any(map(_has_nan, value))
        case list() | tuple():
            return any(map(_has_nan, value))
        case _:
            return False


def _has_nul(value: Any) -> bool:
    match value:
        case str():
            return "\x00" in value
        case dict():
            return any(map(_has_nul, value.values())) or any(map(_has_nul, value))
        case list():
            return any(map(_has_nul, value))
        case _:
            return False
