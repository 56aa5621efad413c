"""`app.limits`: read and change limits at run time, sync and async."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict, Unpack

from sereno.database.database import Database
from sereno.duration import Duration
from sereno.jobs.limits import operations
from sereno.jobs.limits import weights as weight_operations
from sereno.jobs.limits.operations import LimitDetail
from sereno.jobs.limits.rows import LimitRow
from sereno.jobs.limits.weights import WeightLine


class LimitNumbers(TypedDict, total=False):
    """Either `slots`, the number of jobs at once; or `rate`, the number of starts per `per`, with `burst` at once."""

    slots: int
    rate: float
    per: Duration
    burst: float
    note: str
    actor: str


class LimitsClient:
    """Every method has an async twin with the prefix `a`. Each change is written to the audit log with its actor.

    In the event loop of a worker use the async methods: a change waits for the claim in progress, and a sync call
    would block that claim.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # Change

    def set(self, name: str, **numbers: Unpack[LimitNumbers]) -> LimitRow:
        """Override a limit: `set("ifood", rate=50, per="1m")`. Applies at once to all workers, until `reset`."""
        return self._database.run(operations.change(name, **numbers))

    async def aset(self, name: str, **numbers: Unpack[LimitNumbers]) -> LimitRow:
        return await self._database.arun(operations.change(name, **numbers))

    def set_queue(self, queue: str, **numbers: Unpack[LimitNumbers]) -> LimitRow:
        """Override or create a limit for a whole queue, declared in code or not."""
        return self._database.run(operations.change(queue=queue, **numbers))

    async def aset_queue(self, queue: str, **numbers: Unpack[LimitNumbers]) -> LimitRow:
        return await self._database.arun(operations.change(queue=queue, **numbers))

    def reset(self, name: str, *, actor: str | None = None) -> LimitRow | None:
        """Restore the declared limit; return None when it is not declared in code and was deleted."""
        return self._database.run(operations.reset(name, actor=actor))

    async def areset(self, name: str, *, actor: str | None = None) -> LimitRow | None:
        return await self._database.arun(operations.reset(name, actor=actor))

    # Close and open

    def close(self, name: str, *, seconds: Duration, key: str | None = None, actor: str | None = None) -> datetime:
        """Start no jobs under the limit for `seconds`; return the end. A limit with keys needs the key."""
        return self._database.run(operations.close(name, seconds, key=key, actor=actor))

    async def aclose(
        self, name: str, *, seconds: Duration, key: str | None = None, actor: str | None = None
    ) -> datetime:
        return await self._database.arun(operations.close(name, seconds, key=key, actor=actor))

    def open(self, name: str, *, key: str | None = None, actor: str | None = None) -> int:
        """Open a closed key, or all keys; return how many were closed."""
        return self._database.run(operations.reopen(name, key=key, actor=actor))

    async def aopen(self, name: str, *, key: str | None = None, actor: str | None = None) -> int:
        return await self._database.arun(operations.reopen(name, key=key, actor=actor))

    # Weights of fair keys

    def weigh(self, key: str, weight: float, *, actor: str | None = None) -> None:
        """Set the weight of a fair key: its number of turns for each turn of a key with weight 1."""
        self._database.run(weight_operations.weigh(key, weight, actor=actor))

    async def aweigh(self, key: str, weight: float, *, actor: str | None = None) -> None:
        await self._database.arun(weight_operations.weigh(key, weight, actor=actor))

    def unweigh(self, key: str, *, actor: str | None = None) -> bool:
        """Reset the weight to 1. Returns False when it was 1 already."""
        return self._database.run(weight_operations.unweigh(key, actor=actor))

    async def aunweigh(self, key: str, *, actor: str | None = None) -> bool:
        return await self._database.arun(weight_operations.unweigh(key, actor=actor))

    def weights(self) -> Sequence[WeightLine]:
        """Return the fair keys with a weight other than 1, heaviest first."""
        return self._database.run(weight_operations.list_weights())

    async def aweights(self) -> Sequence[WeightLine]:
        return await self._database.arun(weight_operations.list_weights())

    # Read

    def show(self, name: str, *, key: str | None = None, keys: int = 20) -> LimitDetail:
        """Return one limit with its most relevant keys: closed ones first, then waited for, then in use."""
        return self._database.run(operations.show(name, key=key, keys=keys))

    async def ashow(self, name: str, *, key: str | None = None, keys: int = 20) -> LimitDetail:
        return await self._database.arun(operations.show(name, key=key, keys=keys))

    def list(self, pattern: str | None = None) -> Sequence[LimitRow]:
        """Return all limits by name, or those that match a pattern such as "mail.*"."""
        return self._database.run(operations.list_limits(pattern))

    async def alist(self, pattern: str | None = None) -> Sequence[LimitRow]:
        return await self._database.arun(operations.list_limits(pattern))
