"""Who holds the slots of a limiter, as one list of numbers.

A job has a slot of its own. Behind a negative number -n stands a party: jobs that one worker claimed together and that
share n slots, because it runs no more than n of them at once. Quick jobs of one key come in parties, so that a key with
one slot does not cost a claim for every job.
"""

from collections.abc import Collection, Sequence
from typing import TypeAlias

Party: TypeAlias = tuple[int, list[int]]


def slot_groups(held: Sequence[int]) -> list[Party]:
    """The parties of a list; the first holds those with a slot of their own."""
    found: list[Party] = [(len(held), [])]
    for number in held:
        if number < 0:
            found.append((-number, []))
        else:
            found[-1][1].append(number)
    return found


def taken(held: Sequence[int]) -> int:
    """How many slots they hold."""
    if not held or min(held) > 0:
        return len(held)
    return sum(min(slots, len(jobs)) for slots, jobs in slot_groups(held))


def without(held: Sequence[int], gone: Collection[int]) -> list[int]:
    """Those who are still there. A party with a slot for everyone is no longer one."""
    alone: list[int] = []
    together: list[int] = []
    for slots, jobs in slot_groups(held):
        left = [job for job in jobs if job not in gone]
        if len(left) <= slots:
            alone += left
        else:
            together += [-slots, *left]
    return alone + together


def joined(held: Sequence[int], slots: int, jobs: Sequence[int]) -> list[int]:
    """With new ones, who share so many slots. A job that left and came back stands there once."""
    before = without(held, set(jobs))
    return [*jobs, *before] if len(jobs) <= slots else [*before, -slots, *jobs]
