"""Encodes values as JSON for PostgreSQL; refuses values that would not be read back unchanged."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from sereno.error_text import storable


def plain_datetime(value: datetime) -> datetime:
    """Return the same instant as an exact `datetime` in UTC; a naive one stays naive.

    The encoder cannot encode subclasses (pendulum, pandas) and offsets that are not whole minutes.
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
# Nesting levels; the limit of the domain sereno.bounded_json too, so that no JSON parser runs out of stack.
DEEPEST = 100
TOO_DEEP = f"nested more than {DEEPEST} deep"
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))

encoder = msgspec.json.Encoder(enc_hook=_encode_other)


def stored(value: Any, refusal: Callable[[str], Exception]) -> bytes:
    """Return the JSON of a value, or raise the refusal: for NaN, NUL bytes, lone surrogates and deep nesting."""
    try:
        raw = encoder.encode(value)
    except UnicodeEncodeError:
        raise refusal("text with a lone surrogate cannot be stored") from None
    except Exception as error:  # noqa: BLE001 - a model's own serializer may raise anything
        raise refusal(f"not storable as JSON: {storable(error)}") from None
    # Each level has two brackets, so shorter texts need no check.
    if len(raw) > 2 * DEEPEST and is_too_deep(raw):
        raise refusal(TOO_DEEP)
    try:
        _check(value, raw, refusal)
    except RecursionError:
        raise refusal(TOO_DEEP) from None
    return raw


def is_too_deep(raw: bytes) -> bool:
    """Return whether well-formed JSON is nested more than DEEPEST levels."""
    if raw.count(b"[") + raw.count(b"{") <= DEEPEST:
        return False
    brackets = _TEXTS.sub(b"", raw).translate(_BRACKETS, _OTHERS)
    for _ in range(DEEPEST):
        # Each round removes the innermost level.
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def _check(value: Any, raw: bytes, refusal: Callable[[str], Exception]) -> None:
    # msgspec writes NaN as null and NUL as an escape; both are rare, so check only where the bytes suggest it.
    if b"null" in raw and _has_nan(msgspec.to_builtins(value, enc_hook=_encode_other)):
        raise refusal("NaN and infinity are not JSON")
    # Searching for a single backslash is five times as fast as for the whole escape.
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
