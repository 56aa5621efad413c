"""Ids in the query string of a page."""

# The first number above the range of a PostgreSQL bigint.
MOST_ID = 2**63


def number(text: str | None) -> int | None:
    """Return the id; None for an invalid one. One that is too large becomes the largest possible id."""
    if not text or not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_ID)):
        return None
    return min(int(text), MOST_ID - 1)
