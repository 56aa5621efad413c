"""`app.limits`: as a program looks at limits and changes them while everything runs, sync and async."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict, Unpack

from sereno.database.database import Database
from sereno.duration import Duration
from sereno.jobs.limits import operations
from sereno.jobs.limits import weights as weight_operations
from sereno.jobs.limits.operations import LimitDetail
from sereno.jobs.limits.store import LimitRow
from sereno.jobs.limits.weights import WeightLine


class LimitNumbers(TypedDict, total=False):
    """Either `slots`, how many at once; or `rate`, how many in `per`, with `burst` of them together."""

    slots: int
    rate: float
    per: Duration
    burst: float
    note: str
    actor: str


class LimitsClient:
    """Every method has an async twin with an `a` in front. Each change is written to the audit, with its actor.

    Beside a worker in the same event loop use the twins: a change waits for the claim that is under way, and a sync
    call would keep that claim from going on.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # Change

    def set(self, name: str, **numbers: Unpack[LimitNumbers]) -> LimitRow:
        """`app.limits.set("ifood", rate=50, per="1m")`: holds at once and everywhere, until `reset`."""
        return self._database.run(operations.change(name, **numbers))

    async def aset(self, name: str, **numbers: Unpack[LimitNumbers]) -> LimitRow:
        return await self._database.arun(operations.change(name, **numbers))

    def set_queue(self, queue: str, **numbers: Unpack[LimitNumbers]) -> LimitRow:
        """The same for a queue as a whole, also for one that no code limits."""
        return self._database.run(operations.change(queue=queue, **numbers))

    async def aset_queue(self, queue: str, **numbers: Unpack[LimitNumbers]) -> LimitRow:
        return await self._database.arun(operations.change(queue=queue, **numbers))

    def reset(self, name: str, *, actor: str | None = None) -> LimitRow | None:
        """What the code says holds again; None when the code says nothing, so that the limit is gone."""
        return self._database.run(operations.reset(name, actor=actor))

    async def areset(self, name: str, *, actor: str | None = None) -> LimitRow | None:
        return await self._database.arun(operations.reset(name, actor=actor))

    # Close and open

    def close(self, name: str, *, seconds: Duration, key: str | None = None, actor: str | None = None) -> datetime:
        """Nobody starts under it for so long; one that counts keys apart needs the key. Until when it is closed."""
        return self._database.run(operations.close(name, seconds, key=key, actor=actor))

    async def aclose(
        self, name: str, *, seconds: Duration, key: str | None = None, actor: str | None = None
    ) -> datetime:
        return await self._database.arun(operations.close(name, seconds, key=key, actor=actor))

    def open(self, name: str, *, key: str | None = None, actor: str | None = None) -> int:
        """Let start again what was closed; without a key, all of it. Answers how many keys were closed."""
        return self._database.run(operations.reopen(name, key=key, actor=actor))

    async def aopen(self, name: str, *, key: str | None = None, actor: str | None = None) -> int:
        return await self._database.arun(operations.reopen(name, key=key, actor=actor))

    # Weights of fair keys

    def weigh(self, key: str, weight: float, *, actor: str | None = None) -> None:
        """A fair key gets this many turns for one of the others."""
        self._database.run(weight_operations.weigh(key, weight, actor=actor))

    async def aweigh(self, key: str, weight: float, *, actor: str | None = None) -> None:
        await self._database.arun(weight_operations.weigh(key, weight, actor=actor))

    def unweigh(self, key: str, *, actor: str | None = None) -> bool:
        """As everybody else again. False when it was."""
        return self._database.run(weight_operations.unweigh(key, actor=actor))

    async def aunweigh(self, key: str, *, actor: str | None = None) -> bool:
        return await self._database.arun(weight_operations.unweigh(key, actor=actor))

    def weights(self) -> Sequence[WeightLine]:
        """Fair keys that do not weigh 1, the heaviest first."""
        return self._database.run(weight_operations.list_weights())

    async def aweights(self) -> Sequence[WeightLine]:
        return await self._database.arun(weight_operations.list_weights())

    # See

    def show(self, name: str, *, key: str | None = None, keys: int = 20) -> LimitDetail:
        """One limit, with those of its keys that matter most: closed, waited for, in use."""
        return self._database.run(operations.show(name, key=key, keys=keys))

    async def ashow(self, name: str, *, key: str | None = None, keys: int = 20) -> LimitDetail:
        return await self._database.arun(operations.show(name, key=key, keys=keys))

    def list(self, pattern: str | None = None) -> Sequence[LimitRow]:
        """Every limit by name, or those of a pattern such as "mail.*"."""
        return self._database.run(operations.list_limits(pattern))

    async def alist(self, pattern: str | None = None) -> Sequence[LimitRow]:
        return await self._database.arun(operations.list_limits(pattern))
