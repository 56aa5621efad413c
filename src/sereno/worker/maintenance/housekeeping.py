"""Hourly housekeeping: creates partitions ahead of time and deletes what is past its retention."""

import logging
from collections.abc import Callable
from typing import TypeVar

from sereno.access import authentication, idempotency
from sereno.database import partitions
from sereno.database.connect import ServiceConnection
from sereno.database.statement import Operation
from sereno.jobs import attempt_partitions, group_store, history, signals
from sereno.jobs.job_stream import forget_ended
from sereno.jobs.limits import lane_claim
from sereno.jobs.limits import store as limits
from sereno.jobs.queries import minute_stats
from sereno.settings import Settings
from sereno.telemetry.log_events import emit
from sereno.worker import sessions
from sereno.worker.maintenance import unmet
from sereno.worker.maintenance.duties import MaintenanceDuty, MaintenanceStep, Page, run_page
from sereno.worker.maintenance.retention import HOUSEKEEPING_EVERY, drop_attempt_day, drop_days

_T = TypeVar("_T")

# Seconds between two checks for jobs that no live worker can run.
UNKNOWN_TASKS_EVERY = 60.0
# Seconds after which lanes that skipped jobs are read from the beginning: a worker that knows their tasks may have
# started.
REREAD_LANES_EVERY = 60.0
# Seconds between two searches for jobs that emitted chunks and have ended.
CHUNKS_EVERY = 60.0


def duties(settings: Settings) -> list[MaintenanceDuty]:
    """Return the duties that one worker of many does beside its jobs."""
    steps = [
        MaintenanceStep("partitions of history", _all_of(lambda: partitions.make_partitions("history"))),
        MaintenanceStep("partitions of attempts", _all_of(lambda: partitions.make_partitions("attempts"))),
    ]
    if not settings.archives("jobs"):
        steps += _retention_of_jobs(settings)
    steps += [
        MaintenanceStep("sessions and keys that ended", _pages_of(sessions.forget_ended)),
        MaintenanceStep("responses to old requests", _pages_of(idempotency.delete_old_responses)),
        MaintenanceStep("sign-outs of ended cookies", _pages_of(authentication.forget_sign_outs)),
        MaintenanceStep("ended groups", _pages_of(lambda: group_store.forget_groups(settings.keep_history_days))),
        MaintenanceStep("deleted jobs", _pages_of(group_store.forget_deleted)),
        MaintenanceStep("old figures", _pages_of(minute_stats.forget)),
        MaintenanceStep("old signals", _pages_of(lambda: signals.forget_old(settings.keep_signals_days))),
        MaintenanceStep("idle lanes", PagedWalk(limits.FIRST, limits.sweep_lanes)),
        MaintenanceStep("idle limiters", PagedWalk(limits.FIRST, limits.sweep_limiters)),
        MaintenanceStep("shares without lanes", PagedWalk(limits.FIRST_SHARE, limits.sweep_shares)),
    ]
    unknown = MaintenanceStep("unknown tasks", _report_unknown_tasks)
    return [
        MaintenanceDuty("unknown_tasks", UNKNOWN_TASKS_EVERY, [unknown]),
        unmet.duty(settings),
        MaintenanceDuty(
            "reread_lanes", REREAD_LANES_EVERY, [MaintenanceStep("lanes that skipped jobs", _all_of(lane_claim.reread))]
        ),
        MaintenanceDuty(
            "chunks",
            CHUNKS_EVERY,
            [MaintenanceStep("chunks of ended jobs", _pages_of(lambda: forget_ended(settings.chunk_retention)))],
        ),
        MaintenanceDuty("housekeeping", HOUSEKEEPING_EVERY, steps),
    ]


def _retention_of_jobs(settings: Settings) -> list[MaintenanceStep]:
    async def drop_old(connection: ServiceConnection) -> bool:
        await drop_days(connection, "history", settings.keep_history_days)
        return False

    async def drop_old_attempts(connection: ServiceConnection) -> bool:
        return await drop_attempt_day(connection, settings.keep_history_days)

    def carry_strays() -> Operation[bool]:
        return attempt_partitions.carry_strays(settings.keep_history_days, archived=False)

    steps = [
        MaintenanceStep("retention of history", drop_old),
        MaintenanceStep("retention of attempts", drop_old_attempts),
        MaintenanceStep("attempts outside of their days", _pages_of(carry_strays)),
    ]
    if (dead := settings.keep_dead_days) is not None:
        steps.append(MaintenanceStep("retention of dead letters", _pages_of(lambda: history.forget_dead(dead))))
    return steps


class PagedWalk:
    """Reads pages along a key: `page` gets the key to start at and returns the next one, None after the last page.

    A page that fails leaves the key unchanged, so the next round starts there again.
    """

    def __init__(self, first: _T, page: Callable[[_T], Operation[_T | None]]) -> None:
        self._first = self._place = first
        self._page = page

    async def __call__(self, connection: ServiceConnection) -> bool:
        reached = await run_page(connection, self._page(self._place))
        self._place = self._first if reached is None else reached
        return reached is not None


def _pages_of(operation: Callable[[], Operation[bool]]) -> Page:
    """Return a page function for an operation that deletes the rows it reads, so it needs no key to continue at."""

    async def page(connection: ServiceConnection) -> bool:
        return await run_page(connection, operation())

    return page


def _all_of(operation: Callable[[], Operation[_T]]) -> Page:
    """Return a page function that runs a small operation as a whole."""

    async def page(connection: ServiceConnection) -> bool:
        await run_page(connection, operation())
        return False

    return page


async def _report_unknown_tasks(connection: ServiceConnection) -> bool:
    for queue, task, count in await run_page(connection, sessions.unknown_tasks()):
        emit(
            logging.WARNING,
            "task.unknown",
            f"queue {queue}: {count} or more jobs of task {task} wait, and no live worker knows that task",
            queue=queue,
            task=task,
        )
    return False
