"""Replans future instants, a page at a time, when newer time zone data moves them."""

import logging
from typing import TypeAlias

from sereno.database.clock import clock
from sereno.database.connect import ServiceConnection
from sereno.errors import InvalidSchedule
from sereno.schedules import leader_lease, tick
from sereno.schedules.firing import first_instant
from sereno.schedules.rules.instants import compile_text
from sereno.telemetry.log_events import emit
from sereno.zones import VERSION

PAGE = 5000
# Timeout in seconds of the statement that writes a page.
TIMEOUT = 60.0

# Id, rule, next instant, shift and last instant of a schedule.
ZonedSchedule: TypeAlias = tuple[int, str, int, int, int | None]


class Replanner:
    """One round over every schedule with a zone, run by the leader that holds this fence."""

    def __init__(self, before: str | None, fence: int) -> None:
        self._before = before
        self._fence = fence
        self._after = 0
        self._moved = 0

    @classmethod
    def after(cls, before: str | None, fence: int) -> "Replanner | None":
        """Return the round needed if instants were planned with this version; older data replans nothing."""
        if before is not None and before > VERSION:
            emit(
                logging.WARNING,
                "scheduler.zones_old",
                f"this host has time zone data {VERSION}, but {before} was in use: upgrade tzdata on this host",
            )
        return cls(before, fence) if before is None or before < VERSION else None

    async def page(self, connection: ServiceConnection) -> bool:
        """Replan the next page. Return whether it was the last."""
        if self._before is not None:
            rows = await connection.run(tick.zoned(self._after, PAGE))
            if rows:
                self._after = rows[-1][0]
                self._moved += await self._replan(connection, rows)
                return False
            emit(
                logging.WARNING,
                "scheduler.zones_changed",
                f"time zone data changed from {self._before} to {VERSION}: the next instant of {self._moved} schedules "
                "moved",
                moved=self._moved,
            )
        await connection.run(leader_lease.set_zones(self._fence, VERSION))
        return True

    async def _replan(self, connection: ServiceConnection, rows: list[ZonedSchedule]) -> int:
        changed = moved_instants(rows, await connection.run(clock()))
        return await connection.run(tick.replan(changed), TIMEOUT) if changed else 0


def moved_instants(rows: list[ZonedSchedule], now: int) -> list[dict[str, int]]:
    """Return the rows of a page whose next instant is another one by the zone data of this host."""
    changed = []
    for number, text, planned, shift, last in rows:
        try:
            rule = compile_text(text)
            at = first_instant(rule, shift, max(now, last or 0), None) if rule.uses_zone else None
        except (InvalidSchedule, ValueError, ArithmeticError):
            # The tick parks it when it is due.
            continue
        # An instant that is already due fires as planned.
        if at is not None and at != planned and planned > now:
            changed.append({"id": number, "seen": planned, "next": at})
    return changed
