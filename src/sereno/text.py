"""Checks that PostgreSQL can store a text from a caller."""

from sereno.errors import InvalidArguments

# Characters of a name, a key or a note.
NAME_LIMIT = 500


def check_text(name: str, value: str | None) -> None:
    """Raise InvalidArguments unless the value is None, or text that PostgreSQL can store as a name."""
    if value is None:
        return
    if not isinstance(value, str) or not value or len(value) > NAME_LIMIT or "\x00" in value:
        raise InvalidArguments(f"{name} {value!r:.60} must be text of 1 to {NAME_LIMIT} characters, without NUL bytes")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArguments(f"{name} holds a lone surrogate, which cannot be stored") from None
