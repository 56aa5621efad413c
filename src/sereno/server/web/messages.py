"""Translations: English, Spanish and Portuguese. The English sentence is the key of the others."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

LANGUAGES = ("en", "es", "pt")
NAMES = {"en": "English", "es": "Español", "pt": "Português"}


@cache
def dictionary(language: str) -> Mapping[str, str]:
    """Return all translations of a language; each part of the dashboard has a file of its own."""
    found: dict[str, str] = {}
    if language != "en":
        for file in sorted((files("sereno.server.web") / "languages" / language).iterdir(), key=lambda each: each.name):
            found.update(json.loads(file.read_text(encoding="utf-8")))
    return found


@cache
def singular(language: str) -> Mapping[str, str]:
    """Return what the sentences about several say of one."""
    file = files("sereno.server.web") / "languages" / "singular" / f"{language}.json"
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return found


def say(language: str, sentence: str, /, **values: object) -> str:
    """Return the sentence in that language, of one where `count` is 1; in English where a translation is missing."""
    text = dictionary(language).get(sentence, sentence)
    if str(values.get("count")) == "1":
        text = singular(language).get(sentence, text)
    return text % values if values else text


def choose(wanted: str | None, accepted: str) -> str:
    """Return the language that a user has chosen, or else the one that their browser prefers."""
    if wanted in LANGUAGES:
        return wanted
    return next((one for one in _preferred(accepted) if one in LANGUAGES), "en")


def _preferred(accepted: str) -> Iterable[str]:
    """Yield the languages of an Accept-Language header in its order."""
    for part in accepted[:200].split(","):
        yield part.partition(";")[0].strip()[:2].lower()
