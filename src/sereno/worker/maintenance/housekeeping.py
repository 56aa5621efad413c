"""Hourly housekeeping: creates partitions ahead of time and deletes what is past its retention."""

import logging
from collections.abc import Callable
from typing import TypeVar

from sereno.access import tokens
from sereno.database import partitions
from sereno.database.connect import Line
from sereno.database.statement import Operation
from sereno.jobs import attempt_partitions, history, minute_stats
from sereno.jobs.limits import lane_claim
from sereno.jobs.limits import store as limits
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.worker import sessions
from sereno.worker.maintenance.duties import Duty, Page, Step, run_page
from sereno.worker.maintenance.retention import HOUSEKEEPING_EVERY, drop_attempt_day, drop_days

_T = TypeVar("_T")

UNKNOWN_TASKS_EVERY = 60.0
# Seconds after which lanes that skipped jobs are read from the beginning: a worker that knows their tasks may have
# started.
REREAD_LANES_EVERY = 60.0


def duties(settings: Settings) -> list[Duty]:
    """Return the duties that one worker of many does beside its jobs."""
    steps = [
        Step("partitions of history", _all_of(lambda: partitions.make_partitions("history"))),
        Step("partitions of attempts", _all_of(lambda: partitions.make_partitions("attempts"))),
    ]
    if not settings.archives("jobs"):
        steps += _retention_of_jobs(settings)
    steps += [
        Step("sessions and keys that ended", _pages_of(sessions.forget_ended)),
        Step("responses to old requests", _pages_of(tokens.forget_answers)),
        Step("sign-outs of ended cookies", _pages_of(tokens.forget_sign_outs)),
        Step("old figures", _pages_of(minute_stats.forget)),
        Step("idle lanes", PagedWalk(limits.FIRST, limits.sweep_lanes)),
        Step("idle limiters", PagedWalk(limits.FIRST, limits.sweep_limiters)),
        Step("shares without lanes", PagedWalk(limits.FIRST_SHARE, limits.sweep_shares)),
    ]
    unknown = Step("unknown tasks", _report_unknown_tasks)
    return [
        Duty("unknown_tasks", UNKNOWN_TASKS_EVERY, [unknown]),
        Duty("reread_lanes", REREAD_LANES_EVERY, [Step("lanes that skipped jobs", _all_of(lane_claim.reread))]),
        Duty("housekeeping", HOUSEKEEPING_EVERY, steps),
    ]


def _retention_of_jobs(settings: Settings) -> list[Step]:
    async def drop_old(line: Line) -> bool:
        await drop_days(line, "history", settings.keep_history_days)
        return False

    async def drop_old_attempts(line: Line) -> bool:
        return await drop_attempt_day(line, settings.keep_history_days)

    def carry_strays() -> Operation[bool]:
        return attempt_partitions.carry_strays(settings.keep_history_days, archived=False)

    steps = [
        Step("retention of history", drop_old),
        Step("retention of attempts", drop_old_attempts),
        Step("attempts outside of their days", _pages_of(carry_strays)),
    ]
    if (dead := settings.keep_dead_days) is not None:
        steps.append(Step("retention of dead letters", _pages_of(lambda: history.forget_dead(dead))))
    return steps


class PagedWalk:
    """Reads pages along a key: `page` gets the key to start at and returns the next one, None after the last page.

    A page that fails leaves the place unchanged, so the next round starts there again.
    """

    def __init__(self, first: _T, page: Callable[[_T], Operation[_T | None]]) -> None:
        self._first = self._place = first
        self._page = page

    async def __call__(self, line: Line) -> bool:
        reached = await run_page(line, self._page(self._place))
        self._place = self._first if reached is None else reached
        return reached is not None


def _pages_of(operation: Callable[[], Operation[bool]]) -> Page:
    """Return a page function for an operation that deletes what it has read, so it needs no place."""

    async def page(line: Line) -> bool:
        return await run_page(line, operation())

    return page


def _all_of(operation: Callable[[], Operation[_T]]) -> Page:
    """Return a page function that runs a small operation as a whole."""

    async def page(line: Line) -> bool:
        await run_page(line, operation())
        return False

    return page


async def _report_unknown_tasks(line: Line) -> bool:
    for queue, task, count in await run_page(line, sessions.unknown_tasks()):
        emit(
            logging.WARNING,
            "task.unknown",
            f"queue {queue}: {count} or more jobs of task {task} wait, and no live worker knows that task",
            queue=queue,
            task=task,
        )
    return False
