"""What looks like a secret, or like somebody's address, in what a job was given: hidden until somebody asks to see it.

A guess by names and shapes, on the careful side: it keeps a passing look, a picture and a copied page free of them. It
is no substitute for keeping secrets out of arguments.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "********"
# What is nested deeper is not looked into, and so not shown.
DEEPEST = 40
# Of an address so many characters are shown at each end, if it is long enough.
SHOWN = 2

# In a name without its separators: apiKey, api_key and API-KEY are one.
_SECRET_PART = re.compile(
    r"passw|passphrase|contrase(?:ñ|n)a|secret|token|authori[sz]ation|apikey|accesskey|privatekey|credential|cookie|sessionid"
)
# Short ones only as a whole word of it: a discard is no card.
_SECRET_WORDS = frozenset(
    {"auth", "card", "creds", "cvc", "cvv", "iban", "jwt", "otp", "pass", "pin", "pw", "pwd", "senha", "ssn"}
)
_ADDRESS_PART = re.compile(r"e?mail|phone|mobile|msisdn|whatsapp")
_WORDS = re.compile(r"[A-Z]+(?![a-zñ])|[A-Z]?[a-zñ]+|[0-9]+")

# Every repetition has an end, so that no text is slow to read.
_MAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_PHONE = re.compile(r"(?<![\w+])\+[1-9](?:[ ().-]{0,2}[0-9]){6,14}(?![\w])")
_CARD = re.compile(r"(?<![\w-])(?:[0-9]{4}[ -]){3}[0-9]{1,7}(?![\w-])")
_ADDRESS = re.compile(r"@|[0-9]{5}|(?:[0-9][ ().-]{0,2}){7}")
# Names in several languages; in a text a value follows them, with or without quotes.
_SAID = r"passw(?:or)?d|passphrase|contrase(?:ñ|n)a|\bsenha|secret|token|api[_-]?key"
# The first of each is what to look for before the slow search.
_IN_TEXT = (
    ("://", re.compile(r"(://[^\s/:@]{0,200}:)[^\s\"'<>]{1,500}@"), rf"\1{MASK}@"),
    ("b", re.compile(r"\b((?:bearer|basic)\s{1,5})[\w+/.~=-]{8,2000}", re.IGNORECASE), rf"\1{MASK}"),
    ("srn_", re.compile(r"\bsrn_[\w-]{32}"), MASK),
    ("k_", re.compile(r"\b[srp]k_(?:live|test)_\w{8,200}"), MASK),
    # A signed token of three parts.
    ("eyj", re.compile(r"(?<![\w-])eyJ[\w-]{8,2000}\.[\w-]{2,4000}\.[\w-]{2,2000}"), MASK),
    (
        "=",
        re.compile(rf"((?:{_SAID})\s{{0,3}}=\s{{0,3}})(?:'[^'\n]{{1,500}}'|[^\s&\"',;]{{1,500}})", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    (
        ":",
        re.compile(rf"((?:{_SAID})[\"']?\s{{0,3}}:\s{{0,3}}[\"']?)[^\s&\"',;]{{1,500}}", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    ("", _CARD, MASK),
)


def masked(value: Any, depth: int = 0) -> Any:
    """The same JSON, without what nobody has to see. What hides nothing comes back equal to what it was."""
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
    """Whether what has this name is nobody's business."""
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
    """A text with an @, or with enough digits: `mail: "weekly"` names a kind of mail, not a mailbox."""
    several: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(each, str | int) and _ADDRESS.search(str(each)) for each in several)


def without_secrets(text: str) -> str:
    """The same text, without what looks like a secret in it. Addresses of people stay."""
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
    """As its owner recognises it."""
    ends = min(SHOWN, len(address) // 4)
    return f"{address[:ends]}…{address[-ends:]}" if ends else "…"
