"""Masks likely secrets and personal addresses in the arguments of jobs, until a user requests to see them.

It guesses by names and patterns, and masks too much rather than too little: screens, screenshots and copied pages stay
free of secrets. It is no substitute for leaving secrets out of arguments.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "********"
# Levels of nesting; deeper values are masked as a whole.
DEEPEST = 40
# Characters of an address that are shown at each end, if it is long enough.
SHOWN = 2

# Matched in a name without its separators: apiKey, api_key and API-KEY are the same.
_SECRET_PART = re.compile(
    r"passw|passphrase|contrase(?:ñ|n)a|secret|token|authori[sz]ation|apikey|accesskey|privatekey|credential|cookie|sessionid"
)
# Short names are matched as whole words only: "discard" is not "card".
_SECRET_WORDS = frozenset(
    {"auth", "card", "creds", "cvc", "cvv", "iban", "jwt", "otp", "pass", "pin", "pw", "pwd", "senha", "ssn"}
)
_ADDRESS_PART = re.compile(r"e?mail|phone|mobile|msisdn|whatsapp")
_WORDS = re.compile(r"[A-Z]+(?![a-zñ])|[A-Z]?[a-zñ]+|[0-9]+")

# Every repetition is bounded, so that no text makes a pattern slow.
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_PHONE = re.compile(r"(?<![\w+])\+[1-9](?:[ ().-]{0,2}[0-9]){6,14}(?![\w])")
_CARD = re.compile(r"(?<![\w-])(?:[0-9]{4}[ -]){3}[0-9]{1,7}(?![\w-])")
_ADDRESS = re.compile(r"@|[0-9]{5}|(?:[0-9][ ().-]{0,2}){7}")
# Names of secrets in several languages; in a text, the value follows with or without quotes.
_NAMES = r"passw(?:or)?d|passphrase|contrase(?:ñ|n)a|\bsenha|secret|token|api[_-]?key"
# The first item of each is a substring that the text must contain before the slow pattern is tried.
_IN_TEXT = (
    ("://", re.compile(r"(://[^\s/:@]{0,200}:)[^\s\"'<>]{1,500}@"), rf"\1{MASK}@"),
    ("b", re.compile(r"\b((?:bearer|basic)\s{1,5})[\w+/.~=-]{8,2000}", re.IGNORECASE), rf"\1{MASK}"),
    ("srn_", re.compile(r"\bsrn_[\w-]{32}"), MASK),
    ("k_", re.compile(r"\b[srp]k_(?:live|test)_\w{8,200}"), MASK),
    # A JSON Web Token: three parts.
    ("eyj", re.compile(r"(?<![\w-])eyJ[\w-]{8,2000}\.[\w-]{2,4000}\.[\w-]{2,2000}"), MASK),
    (
        "=",
        re.compile(
            rf"((?:{_NAMES})\s{{0,3}}=\s{{0,3}})(?:'(?:[^'\\\n]|\\.){{1,500}}'|[^\s&\"',;]{{1,500}})", re.IGNORECASE
        ),
        rf"\1{MASK}",
    ),
    (
        ":",
        re.compile(rf"((?:{_NAMES})[\"']?\s{{0,3}}:\s{{0,3}}[\"']?)[^\s&\"',;]{{1,500}}", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    ("", _CARD, MASK),
)


def masked(value: Any, depth: int = 0) -> Any:
    """Return the same JSON with secrets and addresses masked. A value without any is returned equal to the original."""
    match value:
        case str():
            return _text(value)
        case Mapping() if depth < DEEPEST:
            return {name: _named(str(name), part, depth) for name, part in value.items()}
        case list() | tuple() if depth < DEEPEST:
            return [masked(part, depth + 1) for part in value]
        case Mapping() | list() | tuple():
            return MASK if value else value
        case _:
            return value


def is_secret(name: str) -> bool:
    """Return whether a value with this name is likely a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return bool(_SECRET_PART.search("".join(words))) or not _SECRET_WORDS.isdisjoint(words)


def _named(name: str, value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool) or value in ("", [], {}):
        return value
    if is_secret(name):
        return MASK
    if _ADDRESS_PART.search(name.lower()) and _holds_addresses(value):
        return [_ends(str(each)) for each in value] if isinstance(value, list | tuple) else _ends(str(value))
    return masked(value, depth + 1)


def _holds_addresses(value: Any) -> bool:
    """Return whether all values have an @ or enough digits: `mail: "weekly"` is a kind of mail, not an address."""
    several: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(each, str | int) and _ADDRESS.search(str(each)) for each in several)


def without_secrets(text: str) -> str:
    """Return the same text with likely secrets masked. Addresses of people stay."""
    lower = text.lower()
    for hint, pattern, instead in _IN_TEXT:
        if hint in lower:
            text = pattern.sub(instead, text)
    return text


def _text(text: str) -> str:
    text = without_secrets(text)
    text = _MAIL.sub(lambda found: _ends(found[0]), text)
    return _PHONE.sub(lambda found: _ends(found[0]), text)


def _ends(address: str) -> str:
    """Return the first and last characters, enough for the owner to recognise the address."""
    ends = min(SHOWN, len(address) // 4)
    return f"{address[:ends]}…{address[-ends:]}" if ends else "…"
