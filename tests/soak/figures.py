"""What is measured at the end of each simulated day."""

import re

import msgspec

# Days of a partition and numbers of a batch: relations that differ only in these are one family.
NUMBER = re.compile(r"_\d+(?=_|$)")


class RelationFigures(msgspec.Struct):
    """A table, index or TOAST table, or a family of them: how many, bytes, rows, dead rows. Only tables have rows.

    `threshold`: dead rows that autovacuum leaves alone in a table of any size, up to which its size goes up and down.
    """

    relations: int = 0
    bytes: int = 0
    rows: int = 0
    dead: int = 0
    threshold: int = 0


class DrainShare(msgspec.Struct):
    """A drain compared with the bare ceiling, by jobs per second and by processor time; more is better.

    Other work on the machine disturbs the speed much more than the processor time.
    """

    speed: float
    processor: float


class DayFigures(msgspec.Struct):
    """One day. `relations`: by "table" or "table.index". `memory`: MiB by service. `plans`: by query.

    `frozen_age`: transactions since the rows of the oldest table were frozen. `vacuums`: of all tables, ever.
    `behind`: tables that autovacuum did not reach in time. `drain`: one for each round.
    """

    day: int
    seconds: float
    jobs: int
    relations: dict[str, RelationFigures]
    sequences: dict[str, int]
    memory: dict[str, float]
    plans: dict[str, list[str]]
    frozen_age: int
    vacuums: int
    behind: list[str]
    drain: list[DrainShare]


def family(name: str) -> str:
    """Return the name without the days and numbers of partitions and batches."""
    return NUMBER.sub("", name)
