"""Numbers that stand in an address."""

# As PostgreSQL counts.
MOST_ID = 2**63


def number(text: str | None) -> int | None:
    """None for what is none. One that is too large is the largest: there is nothing behind it anyway."""
    if not text or not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_ID)):
        return None
    return min(int(text), MOST_ID - 1)
