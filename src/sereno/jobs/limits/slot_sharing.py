"""The jobs that hold the slots of a limiter, encoded as one list of numbers.

Job ids at the start have a slot each. A negative number -n starts a slot group: jobs that one worker claimed together
and that share n slots, because the worker runs at most n of them at once. Short jobs of one key are claimed in groups,
so that a key with one slot does not need a claim for every job.
"""

from collections.abc import Collection, Sequence
from typing import TypeAlias

SharedSlot: TypeAlias = tuple[int, list[int]]


def slot_groups(held: Sequence[int]) -> list[SharedSlot]:
    """Return the slot groups of a list; the first holds the jobs with a slot of their own."""
    found: list[SharedSlot] = [(len(held), [])]
    for number in held:
        if number < 0:
            found.append((-number, []))
        else:
            found[-1][1].append(number)
    return found


def slots_in_use(held: Sequence[int]) -> int:
    """Return how many slots are in use."""
    if not held or min(held) > 0:
        return len(held)
    return sum(min(slots, len(jobs)) for slots, jobs in slot_groups(held))


def without(held: Sequence[int], gone: Collection[int]) -> list[int]:
    """Return the list without the jobs that ended. A group with a slot for each job is dissolved."""
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
    """Return the list with new jobs that share `slots`. A job that was released and claimed again is listed once."""
    before = without(held, set(jobs))
    return [*jobs, *before] if len(jobs) <= slots else [*before, -slots, *jobs]
