"""Row types of limits, their keys and weights."""

from datetime import datetime
from typing import Any

import msgspec

# Counts stop at this number.
BOUND = 1000


class LimitNumbers(msgspec.Struct, kw_only=True):
    """A limit with its effective numbers: slots, or a rate."""

    name: str
    kind: str
    slots: int | None
    units: float | None
    period: float | None
    burst: float | None

    @property
    def numbers(self) -> dict[str, Any]:
        if self.kind == "slots":
            return {"slots": self.slots}
        return {"units": self.units, "period": self.period, "burst": self.burst}


class LimitRow(LimitNumbers, kw_only=True):
    """A limit as it is now; `declared`: the numbers in code.

    Counts up to BOUND: its keys, jobs that hold a slot, ready jobs that wait for it, closed keys.
    """

    queue: str | None
    key: str
    declared: dict[str, Any] | None
    declared_by: str | None
    overridden: bool
    note: str | None
    changed_by: str | None
    changed_at: datetime
    keys: int = 0
    held: int = 0
    waiting: int = 0
    closed: int = 0


class LimiterRow(msgspec.Struct, kw_only=True):
    """One key of a limit: the jobs that hold it, its tokens, its closing time, how many ready jobs wait.

    `taken`: slots in use; fewer than `held` where jobs of one worker share slots.
    """

    key: str
    held: list[int]
    taken: int
    tokens: float | None
    closed_until: datetime | None
    waiting: int
    used_at: datetime
