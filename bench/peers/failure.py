"""The one way in which a peer fails."""


class PeerFailed(Exception):
    """A peer could not be installed, or did not do its work; the message is the reason that is printed."""


def last_line(text: str) -> str:
    """The last words of a failed process, which in both languages say what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
