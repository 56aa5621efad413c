"""Numbers as pages show them: one format for each language, on the whole page."""

from contextvars import ContextVar

# Shown for a missing value.
NONE = "\N{EN DASH}"
# What separates thousands, by language.
SEPARATORS = {"en": ",", "es": "\N{NARROW NO-BREAK SPACE}", "pt": "."}
# That of the request that this task answers.
thousands: ContextVar[str] = ContextVar("thousands", default=SEPARATORS["en"])


def figure(value: float | None) -> str:
    """Return a number in the format of the user's language."""
    return NONE if value is None else f"{value:,.0f}".replace(",", thousands.get())
