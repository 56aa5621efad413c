"""Confirmations: a change is shown first, and done only with the value that was given out for exactly that change."""

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

# Seconds in which a person decides.
LASTS = 600
_VALUE = re.compile(r"confirm-(\d{1,12})-([0-9a-f]{40})")


class Confirmations:
    """Signs changes with a key of this process: another process, or this one after a restart, accepts none of them."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)

    def issue(self, change: Mapping[str, Any]) -> str:
        """Return the value that confirms this change."""
        until = int(self._clock()) + LASTS
        return f"confirm-{until}-{self._signature(until, change)}"

    def accepts(self, value: str, change: Mapping[str, Any]) -> bool:
        """Return whether the value was given out for this change, and has not expired."""
        found = _VALUE.fullmatch(value)
        if found is None or int(found[1]) <= self._clock():
            return False
        return hmac.compare_digest(found[2], self._signature(int(found[1]), change))

    def _signature(self, until: int, change: Mapping[str, Any]) -> str:
        content = json.dumps([until, change], sort_keys=True, separators=(",", ":")).encode()
        return hmac.new(self._key, content, hashlib.sha256).hexdigest()[:40]
