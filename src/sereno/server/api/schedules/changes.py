"""Change many schedules at once: pause, resume, disable, delete, spread, run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import Response
from pydantic import AwareDatetime, Field

from sereno.access.identity import Principal
from sereno.bounded_count import BoundedCount
from sereno.bulk import operations as bulk
from sereno.bulk.operations import ScheduleBulkRequest
from sereno.database.statement import Operation
from sereno.errors import Refused
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.rows import BulkOperation, ScheduleAction
from sereno.schedules import operations as schedules
from sereno.schedules.lists import ScheduleTally, Verb, in_batches, run_all, tally
from sereno.schedules.rules.when import Daily, checked
from sereno.server.api.jobs.bulk import ACCEPTED, InBackground, PerSecond, begun, check_rate
from sereno.server.api.router import Router, Who
from sereno.server.api.schedules.selection import ScheduleSelection
from sereno.server.api.schedules.writing import Length, Note
from sereno.server.shared.context import ServerContext, check_task
from sereno.text import check_text

# The most schedules that one request may run; more is a mistake rather than a need.
MOST_RUN = 1000


class ScheduleBulkBody(ScheduleSelection):
    """`dry_run`: only count. `all`: confirms all that match, where no keys are given."""

    dry_run: bool = False
    all: bool = Field(False, description="Confirms all that match, where no keys are given.")


class ChangeSchedules(ScheduleBulkBody):
    """`in_background`: a worker does it. `rate`: schedules per second, with it."""

    in_background: InBackground = False
    rate: PerSecond | None = None

    def is_for_a_worker(self) -> bool:
        """Return whether a worker does it; a rate without that is invalid."""
        check_rate(self.rate, in_background=self.in_background)
        return self.in_background and not self.dry_run


class PauseSchedules(ChangeSchedules):
    """`until`: they fire again from then on."""

    until: AwareDatetime | None = None
    note: Note = None


class DisableSchedules(ChangeSchedules):
    """They fire again after a resume."""

    note: Note = None


class SpreadSchedules(ChangeSchedules):
    """`over`: such as "20m"; 0 removes the spread."""

    over: Length


@dataclass
class SchedulesChanged:
    """How many were changed; with `dry_run`, how many would be, and which."""

    dry_run: bool
    total: int
    exact: bool
    by_state: dict[str, int]
    by_task: dict[str, int]


# Options of changes that may run in the background.
RESPONSES: dict[str, Any] = {
    "of_tenants": True,
    "also": [HTTPStatus.NOT_FOUND],
    "response_model": SchedulesChanged,
    "responses": ACCEPTED,
}


def routes(context: ServerContext, router: Router) -> None:
    """The bulk changes of `/schedules`."""
    _stop(context, router)
    _remake(context, router)
    _run(context, router)


def _stop(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/schedules/pause", role="operator", **RESPONSES)
    async def pause(body: PauseSchedules, who: Who) -> SchedulesChanged | Response:
        """Pause schedules, for good or until a date. Running jobs continue."""
        check_text("note", body.note)
        if body.is_for_a_worker():
            return await _begun(
                context, who, "schedule.pause", body, ScheduleBulkRequest(until=body.until, note=body.note)
            )
        return await _change(context, who, "pause", body, partial(schedules.pause, until=body.until, note=body.note))

    @router.operation("POST", "/schedules/resume", role="operator", **RESPONSES)
    async def resume(body: ChangeSchedules, who: Who) -> SchedulesChanged | Response:
        """Resume schedules, from now on. Missed instants are not run."""
        if body.is_for_a_worker():
            return await _begun(context, who, "schedule.resume", body)
        return await _change(context, who, "resume", body, schedules.resume)

    @router.operation("POST", "/schedules/disable", role="operator", **RESPONSES)
    async def disable(body: DisableSchedules, who: Who) -> SchedulesChanged | Response:
        """Disable schedules until they are resumed."""
        check_text("note", body.note)
        if body.is_for_a_worker():
            return await _begun(context, who, "schedule.disable", body, ScheduleBulkRequest(note=body.note))
        return await _change(context, who, "disable", body, partial(schedules.disable, note=body.note))


def _remake(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/schedules/delete", role="admin", **RESPONSES)
    async def delete(body: ChangeSchedules, who: Who) -> SchedulesChanged | Response:
        """Delete schedules for good. Their jobs stay, as history."""
        if body.is_for_a_worker():
            return await _begun(context, who, "schedule.delete", body)
        return await _change(context, who, "delete", body, schedules.delete)

    @router.operation("POST", "/schedules/spread", role="admin", **RESPONSES)
    async def spread(body: SpreadSchedules, who: Who) -> SchedulesChanged | Response:
        """Give each schedule its own offset in a window. It fires there after each instant, always at the same one."""
        # An invalid window is refused before any query, with the message of the rule.
        checked(Daily("00:00", spread=body.over))
        if body.is_for_a_worker():
            return await _begun(context, who, "schedule.spread", body, ScheduleBulkRequest(window=body.over))
        return await _change(context, who, "spread", body, partial(schedules.spread, window=body.over))


def _run(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/schedules/run", role="operator", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def run(body: ScheduleBulkBody, who: Who) -> SchedulesChanged:
        """Run each schedule now, whatever its rule; at most 1,000 at once."""
        would = (await context.read(tally(body.filter(who), "run"))).total
        if not body.dry_run and would.value > MOST_RUN:
            raise Refused(f"{would} schedules would run at once, more than {MOST_RUN:,}: narrow the filter")
        return await _change(context, who, "run", body, run_all)


async def _change(
    context: ServerContext, who: Principal, verb: Verb, body: ScheduleBulkBody, operation: Callable[..., Operation[int]]
) -> SchedulesChanged:
    """Change those named by their keys; a filter without keys must be confirmed."""
    wanted = await _open_to(context, who, verb, body.filter(who))
    if body.dry_run:
        return _would(await context.read(tally(wanted, verb)))
    if body.keys is None and not body.all:
        raise Refused(f'this would {verb} every schedule that matches: check with "dry_run", confirm with "all"')
    if wanted.is_empty:
        wanted = replace(wanted, pattern="*")
    changed = await context.carry_out(in_batches(wanted, partial(operation, actor=who.actor)))
    return SchedulesChanged(False, changed, True, {}, {})


async def _open_to(context: ServerContext, who: Principal, verb: Verb, wanted: ScheduleFilter) -> ScheduleFilter:
    """Return the filter; for verbs that create jobs, without tasks that this user may not run; 403 for a named one."""
    allowed = await context.open_tasks(who) if verb in ("run", "resume") else None
    if allowed is None:
        return wanted
    if wanted.keys is not None:
        for task in (await context.read(tally(wanted, verb))).by_task:
            check_task(task, allowed)
    return replace(wanted, tasks=sorted(allowed))


async def _begun(
    context: ServerContext,
    who: Principal,
    action: ScheduleAction,
    body: ChangeSchedules,
    how: ScheduleBulkRequest | None = None,
) -> Response:
    verb: Verb = "resume" if action == "schedule.resume" else "pause"
    wanted = await _open_to(context, who, verb, body.filter(who))

    def begin(total: BoundedCount | None) -> Operation[BulkOperation]:
        return bulk.begin_schedules(action, wanted, how, rate=body.rate, yes=body.all, total=total, actor=who.actor)

    return await begun(context, bulk.count_schedules(action, wanted), begin)


def _would(found: ScheduleTally) -> SchedulesChanged:
    return SchedulesChanged(True, found.total.value, found.total.exact, found.by_state, found.by_task)
