"""Chooses the schedules of a scenario: all up to a number of preemptions and faults, and random ones beyond.

A preemption is a move of another actor while the last one could have gone on. The search is depth-first and keeps no
state of the database: each schedule begins with choices that lead to a new decision, and then no actor is interrupted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.interleavings.execution import Choice, Chooser, Decision


def follow(prefix: Sequence[Choice], divergences: list[Choice]) -> Chooser:
    """Return a chooser that makes these choices first, and then lets each actor go on as long as it can.

    `divergences` gets the choices that were not possible this time.
    """

    def choose(decisions: Sequence[Decision], enabled: tuple[Choice, ...], last: str | None) -> Choice:
        if len(decisions) < len(prefix):
            wanted = prefix[len(decisions)]
            if wanted in enabled:
                return wanted
            # Two statements that waited for one transaction continue in an order that PostgreSQL chooses.
            divergences.append(wanted)
        return _undisturbed(enabled, last)

    return choose


def at_random(random: Random, share: float = 0.3) -> Chooser:
    """Return a chooser that interrupts the last actor with this probability."""

    def choose(_decisions: Sequence[Decision], enabled: tuple[Choice, ...], last: str | None) -> Choice:
        return random.choice(enabled) if random.random() < share else _undisturbed(enabled, last)

    return choose


def schedule_text(decisions: Sequence[Decision]) -> str:
    return " ".join(str(decision.chosen) for decision in decisions)


def _undisturbed(enabled: tuple[Choice, ...], last: str | None) -> Choice:
    if last is not None and Choice(last) in enabled:
        return Choice(last)
    return next(choice for choice in enabled if not choice.fault)


class DrawnSchedules:
    """The schedules that were run: what was possible at each of their points.

    From the same beginning, the same choices lead to the same end, unless PostgreSQL had a choice too. So a random
    schedule is known to be one of them without running it.
    """

    def __init__(self) -> None:
        self._first = _Point()

    def contains(self, choose: Chooser) -> bool:
        """Return whether these choices lead through known points only, and to an end."""
        point: _Point | None = self._first
        last: str | None = None
        while point is not None and point.enabled and not point.varies:
            chosen = choose((), point.enabled, last)
            point, last = point.next.get(chosen), chosen.actor
        return point is not None and point.is_end and not point.varies

    def add(self, decisions: Sequence[Decision]) -> None:
        """Add a schedule that was run to its end."""
        point = self._first
        for decision in decisions:
            point.varies |= point.is_end or point.enabled not in ((), decision.enabled)
            point.enabled = decision.enabled
            point = point.next.setdefault(decision.chosen, _Point())
        point.varies |= point.enabled != ()
        point.is_end = True


@dataclass(slots=True)
class _Point:
    """A point of schedules: what is enabled there, and the point after each choice. `varies`: not always the same."""

    enabled: tuple[Choice, ...] = ()
    next: dict[Choice, "_Point"] = field(default_factory=dict)
    is_end: bool = False
    varies: bool = False


class Search:
    """All schedules of a scenario with at most `preemptions`. Give `record` the decisions of each before the next."""

    def __init__(self, preemptions: int) -> None:
        self._preemptions = preemptions
        self._prefixes: list[tuple[Choice, ...]] = [()]
        self._seen: set[tuple[Choice, ...]] = set()

    def __iter__(self) -> Iterator[tuple[Choice, ...]]:
        while self._prefixes:
            yield self._prefixes.pop()

    def record(self, prefix: Sequence[Choice], decisions: Sequence[Decision]) -> None:
        """Add the schedules that differ from this one in one decision after its prefix."""
        chosen = tuple(decision.chosen for decision in decisions)
        count = 0
        for place, decision in enumerate(decisions):
            if place >= len(prefix):
                for choice in decision.enabled:
                    found = (*chosen[:place], choice)
                    if choice == decision.chosen or found in self._seen:
                        continue
                    if count + decision.is_preemption(choice) <= self._preemptions:
                        self._seen.add(found)
                        self._prefixes.append(found)
            count += decision.is_preemption(decision.chosen)


def shrink(decisions: Sequence[Decision]) -> Iterator[list[Choice]]:
    """Yield shorter beginnings of a failing schedule, the shortest first: the rest is undisturbed."""
    chosen = [decision.chosen for decision in decisions]
    for length in range(len(chosen)):
        yield chosen[:length]
