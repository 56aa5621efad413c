"""Replaces decrypted arguments in the texts of an outcome: a handler may have put them into its error."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from sereno.error_text import ErrorText
from sereno.jobs.attempt import Settlement

# Characters. Shorter values are part of too many other words to be replaced.
SHORTEST_SECRET = 4
# What an error text shows instead of a value.
HIDDEN = "[encrypted]"


class HiddenValues:
    """The values of all jobs of one call: an error of a batch may contain those of any of them.

    Each text is searched once, because the jobs of a batch share their error.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        found = {text for value in values for text in texts(value) if len(text) >= SHORTEST_SECRET}
        # The longest first: one may contain another.
        self._forms = sorted({form for text in found for form in _forms(text)}, key=len, reverse=True)
        self._known: dict[str, str] = {}

    def hide(self, decision: Settlement) -> None:
        """Change the reason and the error of an outcome."""
        if decision.reason is not None:
            decision.reason = self.without(decision.reason)
        if decision.error is not None:
            kind, message, traceback, frame = decision.error
            decision.error = ErrorText(kind, self.without(message), self.without(traceback), frame)

    def without(self, text: str) -> str:
        """Return the text without the values."""
        if text not in self._known:
            self._known[text] = _without(text, self._forms)
        return self._known[text]


def _without(text: str, forms: Sequence[str]) -> str:
    for form in forms:
        text = text.replace(form, HIDDEN)
    for form in forms:
        text = _without_part(text, form)
    return text


def _without_part(text: str, form: str) -> str:
    """Return the text without a part of the value at either end: long texts are cut before they get here."""
    at = text.find(form[:SHORTEST_SECRET])
    while at >= 0:
        if form.startswith(text[at:]):
            text = text[:at] + HIDDEN
            break
        at = text.find(form[:SHORTEST_SECRET], at + 1)
    at = text.rfind(form[-SHORTEST_SECRET:])
    while at >= 0:
        end = at + SHORTEST_SECRET
        if form.endswith(text[:end]):
            return HIDDEN + text[end:]
        at = text.rfind(form[-SHORTEST_SECRET:], 0, end - 1)
    return text


def texts(value: Any) -> list[str]:
    """Return the texts and numbers inside of a JSON value, as they may appear in an error message."""
    match value:
        case str():
            return [value]
        case bool() | None:
            return []
        case int() | float():
            return [msgspec.json.encode(value).decode()]
        case dict():
            return [text for item in value.values() for text in texts(item)]
        case list():
            return [text for item in value for text in texts(item)]
        case _:
            return []


def _forms(text: str) -> tuple[str, str, str]:
    """Return a text as it is, and as it is written inside of quotes by Python and by JSON."""
    return text, repr(text)[1:-1], msgspec.json.encode(text).decode()[1:-1]
