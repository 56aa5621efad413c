"""Keeps time for everybody: due jobs become ready, silent sessions are declared dead, their jobs come back.

Any number of workers do this; SKIP LOCKED and fenced statements make it harmless. One cheap look every few seconds,
or when the next future job is due, says whether there is anything to do. Rarer duties are taken by one worker.
"""

import logging
import math
import random
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from sereno.engine.floor import LookBack
from sereno.engine.retention import MAINTENANCE_TIMEOUT, drop_days
from sereno.engine.service import Service
from sereno.settings import Settings
from sereno.store import days, history, jobs, limits, minutes, sessions, tokens
from sereno.store.connect import Line
from sereno.store.jobs import EVERYTHING
from sereno.store.statement import Operation
from sereno.telemetry.logs import emit

_T = TypeVar("_T")

LOOK_EVERY = 5.0
# Jobs that became due longer ago than this are found by looking at everything.
RECENT = 60.0
# What a look costs on a healthy table.
ORDINARY_LOOK = 0.005
FULL_RESCUE_EVERY = 60.0
HOUSEKEEPING_EVERY = 3600.0
# Whether one of these is ours is asked this often, however busy we are.
ASK_EVERY = 30.0


class Keeper(Service):
    """What time brings."""

    def __init__(self, line: Line, settings: Settings, on_promoted: Callable[[], None]) -> None:
        super().__init__("keeper")
        self._line = line
        self._settings = settings
        self._on_promoted = on_promoted
        self._asked_at = -math.inf
        self._look_back = LookBack()
        self._everything = True

    async def run_once(self) -> float:
        found = await self._look()
        if found.expired_sessions:
            await self._bury_sessions()
        if found.orphans or found.expired_sessions:
            await rescue(self._line)
        rest = await self._promote_or_rest(found.next_due)
        if monotonic() > self._asked_at + ASK_EVERY:
            self._asked_at = monotonic()
            await self._duties()
            # They may have taken long.
            return 0.0
        return rest

    async def _promote_or_rest(self, next_due: float | None) -> float:
        if next_due is not None and next_due <= 0:
            return await self._promote()
        rest = LOOK_EVERY * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        if not self._everything:
            # What became due long ago is found by looking at everything: a clock that was moved makes such jobs.
            rest = min(rest, self._look_back.due_in(monotonic()))
        return rest if next_due is None else min(rest, next_due + 0.001)

    def clock_was_set(self) -> None:
        """Or may have been, while nobody listened: what is due now may have been due for long."""
        self._look_back.ask()
        self.wake()

    async def _look(self) -> sessions.Look:
        """Mostly at the recent past: under a pinned snapshot, the entries of jobs promoted long ago are still there."""
        began = monotonic()
        self._everything = self._look_back.begins(began)
        found = await self._line.run(sessions.look(EVERYTHING if self._everything else RECENT))
        if self._everything:
            now = monotonic()
            self._look_back.done(now, now - began, ORDINARY_LOOK)
        return found

    async def _promote(self) -> float:
        moved = await self._line.run(jobs.promote(EVERYTHING if self._everything else RECENT), MAINTENANCE_TIMEOUT)
        if moved:
            self._on_promoted()
        # Nothing moved although something is due: another worker holds those rows right now.
        return 0.0 if moved else 0.05

    async def _bury_sessions(self) -> None:
        for session, host, pid in await self._line.run(sessions.expire()):
            emit(
                logging.ERROR,
                "session.dead",
                f"session {session} ({host}, pid {pid}) let its lease run out: its jobs come back",
                session=session,
            )

    async def _duties(self) -> None:
        if await self._is_ours("rescue", FULL_RESCUE_EVERY):
            await rescue(self._line, everywhere=True)
            await self._report_unknown_tasks()
        if await self._is_ours("housekeeping", HOUSEKEEPING_EVERY):
            await self._keep_house()

    async def _report_unknown_tasks(self) -> None:
        for queue, task, count in await self._slowly(sessions.unknown_tasks()):
            emit(
                logging.WARNING,
                "task.unknown",
                f"queue {queue}: {count} or more jobs of task {task} wait, and no living worker knows that task",
                queue=queue,
                task=task,
            )

    async def _is_ours(self, duty: str, every: float) -> bool:
        return await self._line.run(sessions.take_duty(duty, every))

    async def _keep_house(self) -> None:
        await self._slowly(days.make_partitions("history"))
        if not self._settings.archives("jobs"):
            await self._forget_jobs()
        await self._slowly(sessions.forget_ended())
        await self._slowly(tokens.forget_answers())
        await self._slowly(minutes.forget())
        while await self._slowly(limits.sweep()) >= limits.SWEEP:
            pass

    async def _forget_jobs(self) -> None:
        await drop_days(self._line, "history", self._settings.keep_history_days)
        if self._settings.keep_dead_days is not None:
            while await self._slowly(history.forget_dead(self._settings.keep_dead_days)):
                pass

    async def _slowly(self, operation: Operation[_T]) -> _T:
        return await self._line.run(operation, MAINTENANCE_TIMEOUT)


async def rescue(line: Line, *, everywhere: bool = False) -> int:
    """Bring back the jobs of sessions that are not alive; answers how many."""
    total = 0
    while saved := await line.run(sessions.rescue(everywhere=everywhere), MAINTENANCE_TIMEOUT):
        total += len(saved)
    if total:
        emit(logging.WARNING, "jobs.rescued", f"{total} jobs of dead sessions are ready again", jobs=total)
    return total
