"""Runs schedules of a scenario one after another, each from the same beginning, and checks their ends."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import psycopg

from tests.interleavings.actor import Actor
from tests.interleavings.connections import Connections
from tests.interleavings.end_state import end_state
from tests.interleavings.execution import Chooser, Decision, Execution
from tests.interleavings.scenario import AnyScenario
from tests.interleavings.search import schedule_text

# Schedules after which all invariants are checked, also those of empty tables, and the end of a schedule that is known.
EVERY = 100
# Schedules after which the dead rows of the earlier ones are removed.
VACUUM_EVERY = 500


class ScheduleFailed(AssertionError):  # noqa: N818 - an event of the search
    """A schedule after which something is wrong."""

    def __init__(self, scenario: AnyScenario, decisions: Sequence[Decision], problem: str) -> None:
        self.decisions = decisions
        self.schedule = schedule_text(decisions)
        super().__init__(
            f"{scenario.name}: {problem}\n"
            f"  schedule: {self.schedule}\n"
            f"  repeat it: python -m tests.interleavings {scenario.name} --schedule {self.schedule!r}"
        )


@dataclass
class Tally:
    """What was searched. `ran`: different schedules, which were run; a random one that is drawn again is not.

    `blocked`: statements that waited for a lock of another actor. `ends`: different end states.

    `diverged`: schedules that went another way, because two statements that waited for one transaction continue in an
    order that PostgreSQL chooses.
    """

    schedules: int = 0
    ran: int = 0
    moves: int = 0
    blocked: int = 0
    diverged: int = 0
    ends: int = 0

    def repeat(self) -> None:
        """Count a schedule that was run before."""
        self.schedules += 1

    def add(self, other: "Tally") -> None:
        self.schedules += other.schedules
        self.ran += other.ran
        self.moves += other.moves
        self.blocked += other.blocked
        self.diverged += other.diverged
        self.ends += other.ends

    def __str__(self) -> str:
        return (
            f"{self.schedules:>9,} schedules {self.ran:>9,} ran {self.moves:>11,} moves "
            f"{self.blocked:>9,} waits {self.diverged:>6,} diverged {self.ends:>6,} ends"
        )


class ScheduleRunner:
    """Runs schedules of one scenario, each from the same beginning.

    Invariants and checks are functions of the rows and of what the programs recorded, so that an end which was checked
    before is not checked again.
    """

    def __init__(self, connections: Connections, scenario: AnyScenario, *, pinned: bool = False) -> None:
        self._connections = connections
        self._scenario = scenario
        self._pinned = pinned
        self._world: Any = None
        self._ends: set[str] = set()
        self.tally = Tally()
        # Whether the last schedule would be the same again.
        self.is_repeatable = False

    def run(self, choose: Chooser, most_faults: int = 0) -> list[Decision]:
        """Run one schedule and check its end. Raises ScheduleFailed."""
        scenario = self._scenario
        world = self._begin()
        actors = [
            Actor(name, self._connections.actor(name), program(world)) for name, program in scenario.programs.items()
        ]
        execution = Execution(actors, self._connections.control, scenario.faulty)
        self._pin()
        try:
            execution.run(choose, most_faults)
            execution.raise_errors()
            assert not (scenario.never_waits and execution.blocked), "a statement waited for another actor"
            self._check(world)
        except (AssertionError, psycopg.Error) as error:
            raise ScheduleFailed(scenario, execution.decisions, f"{type(error).__name__}: {error}") from error
        finally:
            self._connections.snapshot.rollback()
            self._count(execution)
            self.is_repeatable = not execution.had_rivals
        return execution.decisions

    def _begin(self) -> Any:
        """Return the world of a new schedule."""
        tables, scenario = self._connections.tables, self._scenario
        is_restored = scenario.only_rows and not scenario.knows_transactions
        if is_restored and self._world is not None:
            tables.restore()
        else:
            tables.empty()
            if self._world is None:
                self._connections.plain.execute("vacuum")
            self._world = scenario.set_up(self._connections.plain)
            if is_restored:
                tables.save()
                tables.restore()
        return deepcopy(self._world) if is_restored else self._world

    def _pin(self) -> None:
        """Hold a snapshot from before the first move, as a long report does."""
        if self._pinned:
            self._connections.snapshot.execute("set transaction isolation level repeatable read")
            self._connections.snapshot.execute("select count(*) from sereno.jobs")

    def _check(self, world: Any) -> None:
        rows, scenario = self._connections.tables.dump(), self._scenario
        is_last = self.tally.ran % EVERY == EVERY - 1
        end = end_state(rows, world) if scenario.only_rows else None
        if end in self._ends and not is_last:
            return
        self._connections.verifier.check(frozenset(rows), scenario.lease)
        if is_last:
            self._connections.verifier.check_all(scenario.lease)
        scenario.check(self._connections.plain, world)
        if end is not None:
            self._ends.add(end)

    def _count(self, execution: Execution) -> None:
        self.tally.schedules += 1
        self.tally.ran += 1
        self.tally.moves += len(execution.decisions)
        self.tally.blocked += execution.blocked
        self.tally.ends = len(self._ends)
        if self.tally.ran % VACUUM_EVERY == 0:
            self._connections.plain.execute("vacuum")
