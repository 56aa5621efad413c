"""Reads from a standby (`read_url`): pages and lists, while it is reachable and not too far behind.

Which commits a standby has is known by comparing positions in the log: the primary's, once a second, with what the
standby has replayed. A user who changed something reads from the primary until the standby must have it, too.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, TypeVar

import psycopg

from sereno.database.database import Database
from sereno.database.statement import Operation, arun
from sereno.errors import DatabaseUnavailable
from sereno.monitoring.standby import primary_position, readable, standby_position
from sereno.server.shared.authenticator import CURRENT_SHARE, SAFE, Share
from sereno.settings import Settings

T = TypeVar("T")

# Seconds between two comparisons, and between two tries to reach a standby that did not answer.
COMPARE_EVERY = 1.0
TRY_AGAIN = 5.0
# Seconds for one comparison.
TIMEOUT = 3.0
# Positions of the primary that are remembered.
MOST_POSITIONS = 600
# Tells all servers that this browser has changed something; it expires when the standby must have the change.
COOKIE = "sereno_changed"
# Of the API, lists and figures: one word after the version. A single job or event may be newer than the standby, and
# some are about the primary itself.
_LISTS = re.compile(r"/api/v\d+/(?!doctor|inbox|settings|verify)[\w-]+/?")
# About the primary itself.
_OF_PRIMARY = ("/autoscale", "/livez", "/metrics", "/readyz")

# Whether the current request may read from the standby.
MAY_USE_STANDBY: ContextVar[bool] = ContextVar("may_use_standby", default=False)

Source = Literal["standby", "behind", "away"]


@dataclass(frozen=True, slots=True)
class StandbyStatus:
    """`source`: reads come from the standby, or from the primary because it is behind or away. `lag`: in seconds."""

    source: Source = "away"
    lag: float = 0.0


class ReplayedPositions:
    """Compares what a standby has replayed with earlier positions of the primary."""

    def __init__(self) -> None:
        self._positions: deque[tuple[float, int]] = deque(maxlen=MOST_POSITIONS)
        # When the primary had nothing yet that the standby has not, at the last comparison.
        self.complete_at: float | None = None

    def add(self, now: float, position: int) -> None:
        self._positions.append((now, position))

    def replayed(self, position: int) -> bool:
        """Note what the standby has; return whether that is everything known."""
        while self._positions and self._positions[0][1] <= position:
            self.complete_at = self._positions.popleft()[0]
        return not self._positions


class StandbyReader:
    """Runs reads on the standby, or says that the primary has to."""

    def __init__(self, primary: Database, settings: Settings) -> None:
        self._primary = primary
        self._lag_limit = settings.read_lag
        # Any server of the list may be read.
        url = readable(settings.read_url or "")
        self._standby = Database(settings, lambda: url)
        self._positions = ReplayedPositions()
        # When to compare next, by the monotonic clock.
        self._next = 0.0
        self._comparing = asyncio.Lock()
        self._changed_at: dict[Share | None, float] = {}
        self.status = StandbyStatus()

    @property
    def keep_away(self) -> int:
        """Seconds for which a user who has changed something reads from the primary."""
        return int(self._lag_limit + COMPARE_EVERY) + 1

    def changed(self) -> None:
        """The current user has changed something."""
        now = monotonic()
        for who in [who for who, at in self._changed_at.items() if at + self.keep_away < now]:
            del self._changed_at[who]
        self._changed_at[CURRENT_SHARE.get()] = now

    async def run(self, operation: Operation[T], otherwise: Callable[[Operation[T]], Awaitable[T]]) -> T:
        """Run a read on the standby if the current request may use it; `otherwise` runs it on the primary."""
        if not self.may_use() or not await self._is_usable():
            return await otherwise(operation)
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(self._standby.aconnection())
            except DatabaseUnavailable:
                self.status = StandbyStatus()
                return await otherwise(operation)
            async with connection.transaction():
                return await arun(connection, operation, self._standby.settings.schema)

    async def close(self) -> None:
        await self._standby.aclose()

    def may_use(self) -> bool:
        """Return whether the current request may be answered from the standby."""
        changed_at = self._changed_at.get(CURRENT_SHARE.get())
        return MAY_USE_STANDBY.get() and (changed_at is None or changed_at + self.keep_away < monotonic())

    async def _is_usable(self) -> bool:
        async with self._comparing:
            if self._next <= monotonic():
                self.status = await self._compare()
                self._next = monotonic() + (TRY_AGAIN if self.status.source == "away" else COMPARE_EVERY)
        return self.status.source == "standby"

    async def _compare(self) -> StandbyStatus:
        """Compare the standby with the primary. While the primary is away, the standby has to have what is known."""
        began = monotonic()
        try:
            async with asyncio.timeout(TIMEOUT):
                self._positions.add(began, await self._primary.arun_one(primary_position()))
            is_primary_away = False
        except (DatabaseUnavailable, psycopg.Error, TimeoutError):
            is_primary_away = True
        try:
            async with asyncio.timeout(TIMEOUT):
                is_standby, position, age = await self._standby.arun_one(standby_position())
        except (DatabaseUnavailable, psycopg.Error, TimeoutError):
            return StandbyStatus("away")
        if not is_standby or position is None:
            # It is a primary now, or does not tell what it has replayed.
            return StandbyStatus("away")
        is_complete = self._positions.replayed(position)
        lag = 0.0 if is_complete else max(0.0, age or 0.0)
        known_at = self._positions.complete_at
        is_recent = known_at is not None and monotonic() - known_at <= self._lag_limit
        return StandbyStatus("standby" if is_recent or (is_primary_away and is_complete) else "behind", lag)


def may_use_standby(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request may be answered from the standby: a page or a list, without a change just before."""
    if scope.get("method") not in SAFE:
        return False
    path = str(scope.get("path", "")).removeprefix(str(scope.get("root_path", "")))
    if path in _OF_PRIMARY or (path.startswith("/api/") and not _LISTS.fullmatch(path)):
        return False
    headers: list[tuple[bytes, bytes]] = list(scope.get("headers", ()))
    changed = f"{COOKIE}=".encode()
    return (b"x-sereno-live", b"changed") not in headers and not any(
        name == b"cookie" and changed in value for name, value in headers
    )


def changed_cookie(seconds: int, root: str) -> bytes:
    """Return the header value that sets the cookie."""
    return f"{COOKIE}=1; Max-Age={seconds}; Path={root or '/'}; HttpOnly; SameSite=Lax".encode()
