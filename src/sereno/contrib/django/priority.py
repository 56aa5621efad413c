"""Converts between Django's priorities, -100 (last) to 100 (first), and those of sereno, 0 (first) to 9 (last)."""

from sereno.jobs.job import DEFAULT_PRIORITY

# How many of Django's priorities make one of sereno's, above Django's default and below it.
UP, DOWN = 20, 25


def ours(theirs: int) -> int:
    """Return sereno's priority; any value above Django's default comes before the default, any below comes after it."""
    return DEFAULT_PRIORITY - -(-theirs // UP) if theirs > 0 else DEFAULT_PRIORITY + -(theirs // DOWN)


def theirs(step: int) -> int:
    """Return the Django priority of this step that is farthest from Django's default."""
    return (DEFAULT_PRIORITY - step) * (UP if step < DEFAULT_PRIORITY else DOWN)
