"""Converts between Django's priorities, -100 (last) to 100 (first), and those of sereno, 0 (first) to 9 (last)."""

from sereno.jobs.job import DEFAULT_PRIORITY

# Django priorities that map to one of sereno's, above Django's default and below it.
UP, DOWN = 20, 25


def to_sereno(priority: int) -> int:
    """Return sereno's priority; any value above Django's default comes before the default, any below comes after it."""
    return DEFAULT_PRIORITY - -(-priority // UP) if priority > 0 else DEFAULT_PRIORITY + -(priority // DOWN)


def to_django(priority: int) -> int:
    """Return the Django priority that maps to sereno's `priority` and is farthest from Django's default."""
    return (DEFAULT_PRIORITY - priority) * (UP if priority < DEFAULT_PRIORITY else DOWN)
