"""Checks of a provider's callback: its secret, its age, its JSON; and the receipts in it."""

import hmac
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from sereno.channels.contract import Callback
from sereno.channels.outcome import Receipt, ReceiptOutcome
from sereno.channels.single_message import provider_id, provider_text
from sereno.errors import RejectedCallback

# Seconds by which the clock of a provider may be ahead.
CLOCK_SKEW = 300.0
_SECONDS = re.compile(r"[0-9]{1,12}")


def is_secret(received: str, expected: str) -> bool:
    """Compare in constant time; an empty secret matches nothing."""
    texts = (received.encode("utf-8", "replace"), expected.encode("utf-8", "replace"))
    return hmac.compare_digest(*texts) and bool(expected)


def check_age(timestamp: Any, now: datetime, most: float) -> None:
    """Raise RejectedCallback unless the Unix timestamp is at most this number of seconds old."""
    text = str(timestamp) if isinstance(timestamp, str | int) else ""
    if not _SECONDS.fullmatch(text) or not -CLOCK_SKEW <= now.timestamp() - int(text) <= most:
        raise RejectedCallback("the callback is too old, or has no valid timestamp")


def json_of(callback: Callback) -> Any:
    try:
        return msgspec.json.decode(callback.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RejectedCallback("the callback is not JSON") from None


def json_object(callback: Callback) -> Mapping[str, Any]:
    found = json_of(callback)
    if not isinstance(found, dict):
        raise RejectedCallback("the callback is not a JSON object")
    return found


def receipts(name: Any, *outcomes: ReceiptOutcome, code: Any = "", message: Any = "") -> list[Receipt]:
    """Return the receipts of one message; none if it has no valid id.

    Opens and clicks are reported many times: the first of each counts.
    """
    valid = provider_id(name)
    if valid is None:
        return []
    texts = {"code": provider_text(code), "message": provider_text(message)}
    return [Receipt(provider_id=valid, outcome=each, id=f"{valid}.{each}", **texts) for each in outcomes]
