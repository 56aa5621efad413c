"""Priorities of Django, -100 (last) to 100 (first), and ours, 0 (first) to 9 (last): one of ten steps."""

from sereno.jobs.job import DEFAULT_PRIORITY

# So many of Django's priorities make one step, above its default and below.
UP, DOWN = 20, 25


def ours(theirs: int) -> int:
    """Whatever is above Django's default goes before it, and whatever is below goes after it."""
    return DEFAULT_PRIORITY - -(-theirs // UP) if theirs > 0 else DEFAULT_PRIORITY + -(theirs // DOWN)


def theirs(step: int) -> int:
    """The outermost of those that make this step."""
    return (DEFAULT_PRIORITY - step) * (UP if step < DEFAULT_PRIORITY else DOWN)
