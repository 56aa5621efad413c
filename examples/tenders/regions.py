"""The sixteen regions. The partners write each in several ways: "Región del Biobío ", "VIII Región del Bío-Bío"."""

import unicodedata

REGIONS = (
    "Arica y Parinacota",
    "Tarapacá",
    "Antofagasta",
    "Atacama",
    "Coquimbo",
    "Valparaíso",
    "Metropolitana",
    "O'Higgins",
    "Maule",
    "Ñuble",
    "Biobío",
    "La Araucanía",
    "Los Ríos",
    "Los Lagos",
    "Aysén",
    "Magallanes",
)
# Part of every spelling, where the name is not.
_SPELLINGS = {"Arica y Parinacota": ("arica",), "O'Higgins": ("higgins",), "Aysén": ("aysen", "aisen")}


def folded(text: str) -> str:
    """Return the text in lower case and without accents, as people type when they search."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def region_of(text: str | None) -> str | None:
    """Return the region that a text names, or None."""
    letters = _letters(text or "")
    return next((name for name, parts in _PARTS.items() if any(part in letters for part in parts)), None)


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, folded(text)))


_PARTS = {name: _SPELLINGS.get(name, (_letters(name),)) for name in REGIONS}
