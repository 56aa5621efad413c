"""A scenario: what is there at the beginning, what each actor does, and what must be true at the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tests.interleavings.program import Program
from tests.jobs.job_steps import Connection

W = TypeVar("W")


@dataclass(frozen=True)
class Scenario(Generic[W]):
    """`set_up` returns the world: what the programs share and record. `check` raises if an end state is wrong.

    `faulty`: actors that may be killed, and may lose the reply of a commit. `capability`: the promise that it proves.
    `never_waits`: no statement may wait for a lock of another actor.
    """

    name: str
    capability: str
    set_up: Callable[[Connection], W]
    programs: Mapping[str, Callable[[W], Program]]
    check: Callable[[Connection, W], None]
    faulty: frozenset[str] = field(default_factory=frozenset)
    never_waits: bool = False
    # Whether rows of the schema and the world are all that it has. Otherwise it is set up and checked each time.
    only_rows: bool = True
    # Whether the world remembers transaction ids: then it is set up each time, and not restored from saved rows.
    knows_transactions: bool = False
    # Seconds of lease that the sessions of the scenario have: `verify` allows jobs of dead sessions that long.
    lease: float = 30.0


AnyScenario = Scenario[Any]
