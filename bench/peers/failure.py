"""The exception of a peer that failed."""


class PeerFailed(Exception):
    """A peer could not be installed or did not do its work; the message says why."""


def last_line(text: str) -> str:
    """Return the last line of a failed process's output, which names the error in Python and in Node."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"
