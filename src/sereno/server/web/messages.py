"""The pages speak English, Spanish and Portuguese: the English sentence is the key of the others."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

LANGUAGES = ("en", "es", "pt")
NAMES = {"en": "English", "es": "Español", "pt": "Português"}


@cache
def dictionary(language: str) -> Mapping[str, str]:
    """Every sentence of a language; each part of the pages has a file of its own."""
    found: dict[str, str] = {}
    if language != "en":
        for file in sorted((files("sereno.server.web") / "languages" / language).iterdir(), key=lambda each: each.name):
            found.update(json.loads(file.read_text(encoding="utf-8")))
    return found


def say(language: str, sentence: str, /, **values: object) -> str:
    """In that language; in English where there is no other word for it."""
    said = dictionary(language).get(sentence, sentence)
    return said % values if values else said


def choose(wanted: str | None, accepted: str) -> str:
    """What somebody has chosen, or else what their browser asks for."""
    if wanted in LANGUAGES:
        return wanted
    return next((one for one in _asked_for(accepted) if one in LANGUAGES), "en")


def _asked_for(accepted: str) -> Iterable[str]:
    """The languages of an Accept-Language header, as it orders them."""
    for part in accepted[:200].split(","):
        yield part.partition(";")[0].strip()[:2].lower()
