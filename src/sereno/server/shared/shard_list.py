"""The shards of a read-only server: each one's figures, all read at the same time, with a timeout for each."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from sereno.database.migrate import migrations
from sereno.errors import SerenoError
from sereno.monitoring.shard_figures import ShardFigures, shard_figures
from sereno.server.shared.cache import Cache, Cached
from sereno.server.shared.context import ServerContext

# Seconds that a page waits for one shard. A read that takes longer continues, and the next page has its result.
SHARD_TIMEOUT = 1.0

NO_SCHEMA = "its schema cannot be read: run `sereno migrate` on it, or check the privileges of the server's login"


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard. `figures`: None if none were ever read; `age`: above zero, their age in seconds, if they are old.

    `is_current`: whether its schema is that of this server. `problem`: why it cannot be read although it responds.
    """

    name: str
    is_reachable: bool
    is_current: bool
    age: float
    figures: ShardFigures | None
    problem: str | None = None


class ShardList:
    """The shards in the order in which they were given; the first one has the tokens."""

    def __init__(self, contexts: Mapping[str, ServerContext]) -> None:
        self.contexts = contexts
        self._caches = {name: Cache(context) for name, context in contexts.items()}
        self._newest = max(migration.number for migration in migrations())

    async def read(self) -> list[ShardStatus]:
        """Return the state of all shards, after SHARD_TIMEOUT at the latest."""
        return list(await asyncio.gather(*(self._status(name) for name in self.contexts)))

    async def _status(self, name: str) -> ShardStatus:
        try:
            found: Cached[ShardFigures] = await self._caches[name].get(
                "figures", shard_figures, timeout=SHARD_TIMEOUT, seconds=SHARD_TIMEOUT
            )
        except psycopg.InterfaceError:
            return ShardStatus(name, is_reachable=False, is_current=False, age=0.0, figures=None)
        except (psycopg.Error, SerenoError):
            return ShardStatus(name, is_reachable=True, is_current=False, age=0.0, figures=None, problem=NO_SCHEMA)
        figures = found.value
        is_current = figures is not None and figures.schema_version == self._newest
        is_reachable = figures is not None and not found.is_old
        return ShardStatus(name, is_reachable, is_current, round(max(0.0, found.age), 1), figures)
