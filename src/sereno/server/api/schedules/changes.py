"""Schedules that are written and steered: create or change, import, pause, resume, disable, delete, spread."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from sereno.access.identity import Principal
from sereno.bulk import operations as bulk
from sereno.bulk.operations import Steered
from sereno.bulk.store import BulkOperation, ScheduleAction
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments, Refused, SerenoError
from sereno.jobs.job import JobOptions, NewJob, check_text
from sereno.jobs.job_filter import ScheduleFilter
from sereno.jobs.rows import Count
from sereno.schedules import operations as schedules
from sereno.schedules import store
from sereno.schedules.bulk_write import Described, described, unchecked_job, write
from sereno.schedules.importers.definition import MakeJob
from sereno.schedules.lists import ScheduleTally, Verb, in_batches, run_all, tally
from sereno.schedules.rules.when import Daily, checked, describe
from sereno.schedules.store import Upserted
from sereno.server.api.bounds import Tags, check_few
from sereno.server.api.jobs.bulk import ACCEPTED, InBackground, PerSecond, begun, check_rate
from sereno.server.api.router import Door, Who
from sereno.server.api.schedules.selection import Key, SchedulesWanted, Text, called
from sereno.server.shared.context import House, check_task
from sereno.server.shared.http_error import Declined
from sereno.server.shared.tenant_scope import check_theirs, their_tenant
from sereno.zones import moment

MOST_IMPORTED = 1000
MOST_FIELDS = 100
# More runs than this at once are no help, but a flood.
MOST_RUN = 1000

Length = Annotated[str, Field(max_length=100)] | float
Note = Annotated[Text | None, Field(description="Why; shown wherever somebody wonders.")]
Unchecked = Annotated[bool, Query(description="Also for a task that the application of this server does not know.")]


class Definition(BaseModel):
    """What an export holds of a schedule, but for its key. Lengths are seconds or text such as "15m"."""

    model_config = ConfigDict(extra="forbid")

    task: Text
    args: dict[str, Any] = {}
    when: dict[str, Any] = Field(description='The rule, such as {"kind": "every", "interval": "5m"}.')
    queue: Text | None = None
    priority: int | None = Field(None, ge=0, le=9)
    tenant: Text | None = None
    tags: Tags | None = None
    trace: Text | None = None
    unique_key: Text | None = None
    unique_for: Length | None = None
    on_conflict: Literal["keep", "replace"] | None = None
    missed: Literal["skip", "latest", "all"] | None = None
    missed_limit: int | None = None
    missed_window: Length | None = None
    max_lateness: Length | None = None
    overlap: Literal["skip", "allow", "queue_one", "cancel_previous"] | None = None
    starts_at: AwareDatetime | None = None
    ends_at: AwareDatetime | None = None
    max_fires: int | None = None
    disable_after: int | None = None
    expires_after: Length | None = None
    # More fields than there are make one error, not one each.
    _few = model_validator(mode="before")(lambda given: check_few(given, MOST_FIELDS))

    enabled: bool = Field(True, description="False writes it stopped; true leaves alone what somebody stopped.")
    note: Note = None


class ImportBody(BaseModel):
    """`strict`: all of them, or none. `dry_run`: only say what would be done."""

    schedules: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_IMPORTED)
    strict: bool = False
    dry_run: bool = False


class BulkOfSchedules(SchedulesWanted):
    """`dry_run`: only say what it would touch. `all`: whatever the filter finds, where no keys are named."""

    dry_run: bool = False
    all: bool = Field(False, description="Really all that match, where no keys are named.")


class SteerSchedules(BulkOfSchedules):
    """`in_background`: a worker does it. `rate`: then, so many a second."""

    in_background: InBackground = False
    rate: PerSecond | None = None

    def is_for_a_worker(self) -> bool:
        """Whether it is; a rate without that makes no sense."""
        check_rate(self.rate, in_background=self.in_background)
        return self.in_background and not self.dry_run


class PauseSchedules(SteerSchedules):
    """`until`: fire again from there on."""

    until: AwareDatetime | None = None
    note: Note = None


class DisableSchedules(SteerSchedules):
    """They fire again when somebody resumes them."""

    note: Note = None


class SpreadSchedules(SteerSchedules):
    """`over`: such as "20m"; 0 takes the spread away."""

    over: Length


@dataclass
class Written:
    """`what`: created, changed or unchanged. `when`: the rule in words."""

    id: int
    key: str
    what: str
    state: str
    next_run_at: datetime | None
    when: str


@dataclass
class RefusedDefinition:
    """`at`: its place in the list, from 0 on."""

    at: int
    key: str | None
    problem: str


@dataclass
class Brought:
    """What became of an import; with `dry_run`, what would."""

    dry_run: bool
    created: int = 0
    changed: int = 0
    unchanged: int = 0
    changed_keys: list[str] = field(default_factory=list)
    refused: list[RefusedDefinition] = field(default_factory=list)


@dataclass
class SchedulesChanged:
    """How many were changed; with `dry_run`, how many would be, and which."""

    dry_run: bool
    total: int
    exact: bool
    by_state: dict[str, int]
    by_task: dict[str, int]


# Of a change that may go on in the background.
ANSWERS: dict[str, Any] = {
    "of_tenants": True,
    "also": [HTTPStatus.NOT_FOUND],
    "response_model": SchedulesChanged,
    "responses": ACCEPTED,
}


class _Undone(Exception):  # noqa: N818 - no error: a dry run ends so
    """Nothing of the transaction is kept."""


def rooms(house: House, door: Door) -> None:
    """What writes `/schedules`."""
    _write(house, door)
    _stop(house, door)
    _remake(house, door)
    _run(house, door)


def _write(house: House, door: Door) -> None:
    also = [HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT]

    @door.at("PUT", "/schedules/{key:path}", role="admin", of_tenants=True, also=also)
    async def put(key: Key, body: Definition, who: Who, unchecked: Unchecked = False) -> Written:
        """Make a schedule, or change the one of this key to be so. Said again unchanged, it is not touched."""
        make_job = await _job_maker(house, who, unchecked)
        wanted = await asyncio.to_thread(_described, {"key": key, **body.model_dump()}, make_job, who)
        (made,) = await house.change(written([wanted], who))
        at = None if made.next_run_at is None else moment(made.next_run_at)
        return Written(made.id, made.key, made.what, made.state, at, describe(wanted.schedule.when))

    @door.at("POST", "/schedules/import", role="admin", of_tenants=True)
    async def bring_in(body: ImportBody, who: Who, unchecked: Unchecked = False) -> Brought:
        """Definitions out of an export. One that is refused does not stop the others, unless `strict`."""
        brought = Brought(body.dry_run)
        make_job = await _job_maker(house, who, unchecked)
        wanted = await asyncio.to_thread(_accepted, body, brought, make_job, who)
        with suppress(_Undone):
            await house.change(_import(body, brought, wanted, who))
        return brought


def _stop(house: House, door: Door) -> None:
    @door.at("POST", "/schedules/pause", role="operator", **ANSWERS)
    async def pause(body: PauseSchedules, who: Who) -> SchedulesChanged | Response:
        """They fire no more, or not before a date. What runs goes on."""
        check_text("note", body.note)
        if body.is_for_a_worker():
            return await _begun(house, who, "schedule.pause", body, Steered(until=body.until, note=body.note))
        return await _change(house, who, "pause", body, partial(schedules.pause, until=body.until, note=body.note))

    @door.at("POST", "/schedules/resume", role="operator", **ANSWERS)
    async def resume(body: SteerSchedules, who: Who) -> SchedulesChanged | Response:
        """They fire again, from now on. What passed meanwhile is not caught up."""
        if body.is_for_a_worker():
            return await _begun(house, who, "schedule.resume", body)
        return await _change(house, who, "resume", body, schedules.resume)

    @door.at("POST", "/schedules/disable", role="operator", **ANSWERS)
    async def disable(body: DisableSchedules, who: Who) -> SchedulesChanged | Response:
        """They fire no more until somebody resumes them."""
        check_text("note", body.note)
        if body.is_for_a_worker():
            return await _begun(house, who, "schedule.disable", body, Steered(note=body.note))
        return await _change(house, who, "disable", body, partial(schedules.disable, note=body.note))


def _remake(house: House, door: Door) -> None:
    @door.at("POST", "/schedules/delete", role="admin", **ANSWERS)
    async def delete(body: SteerSchedules, who: Who) -> SchedulesChanged | Response:
        """Gone for good. Their jobs stay as history."""
        if body.is_for_a_worker():
            return await _begun(house, who, "schedule.delete", body)
        return await _change(house, who, "delete", body, schedules.delete)

    @door.at("POST", "/schedules/spread", role="admin", **ANSWERS)
    async def spread(body: SpreadSchedules, who: Who) -> SchedulesChanged | Response:
        """Give each its own place in a window. It fires there after each instant, always at the same place."""
        # Refused before anything is looked at, in the words of the rule.
        checked(Daily("00:00", spread=body.over))
        if body.is_for_a_worker():
            return await _begun(house, who, "schedule.spread", body, Steered(window=body.over))
        return await _change(house, who, "spread", body, partial(schedules.spread, window=body.over))


def _run(house: House, door: Door) -> None:
    @door.at("POST", "/schedules/run", role="operator", of_tenants=True, also=[HTTPStatus.NOT_FOUND])
    async def run(body: BulkOfSchedules, who: Who) -> SchedulesChanged:
        """Fire each of them now, whatever its rule says; no more than 1,000 at once."""
        would = (await house.read(tally(body.filter(who), "run"))).total
        if not body.dry_run and would.value > MOST_RUN:
            raise Refused(f"{would} schedules would run at once, and {MOST_RUN:,} are the most: narrow it down")
        return await _change(house, who, "run", body, run_all)


async def _change(
    house: House, who: Principal, verb: Verb, body: BulkOfSchedules, operation: Callable[..., Operation[int]]
) -> SchedulesChanged:
    """Those that are named by their keys are meant; whatever a filter finds must be confirmed."""
    wanted = await _open_to(house, who, verb, body.filter(who))
    if body.dry_run:
        return _would(await house.read(tally(wanted, verb)))
    if body.keys is None and not body.all:
        raise Refused(f'this would {verb} every schedule that matches: look with "dry_run", confirm with "all"')
    if wanted.is_empty:
        wanted = replace(wanted, pattern="*")
    changed = await house.carry_out(in_batches(wanted, partial(operation, actor=who.actor)))
    return SchedulesChanged(False, changed, True, {}, {})


async def _open_to(house: House, who: Principal, verb: Verb, wanted: ScheduleFilter) -> ScheduleFilter:
    """For what makes jobs, without schedules of tasks that somebody may not have run; 403 for one that was named."""
    allowed = await house.open_tasks(who) if verb in ("run", "resume") else None
    if allowed is None:
        return wanted
    if wanted.keys is not None:
        for task in (await house.read(tally(wanted, verb))).by_task:
            check_task(task, allowed)
    return replace(wanted, tasks=sorted(allowed))


async def _begun(
    house: House, who: Principal, action: ScheduleAction, body: SteerSchedules, how: Steered | None = None
) -> Response:
    verb: Verb = "resume" if action == "schedule.resume" else "pause"
    wanted = await _open_to(house, who, verb, body.filter(who))

    def begin(total: Count | None) -> Operation[BulkOperation]:
        return bulk.begin_schedules(action, wanted, how, rate=body.rate, yes=body.all, total=total, actor=who.actor)

    return await begun(house, bulk.count_schedules(action, wanted), begin)


def _would(found: ScheduleTally) -> SchedulesChanged:
    return SchedulesChanged(True, found.total.value, found.total.exact, found.by_state, found.by_task)


async def _job_maker(house: House, who: Principal, unchecked: bool) -> MakeJob:
    if not unchecked:
        return await house.job_maker(who)
    allowed = await house.open_tasks(who)

    def made(task: str, raw: bytes, options: JobOptions) -> NewJob:
        check_task(task, allowed)
        return unchecked_job(task, raw, options)

    return made


def _described(fields: dict[str, Any], make_job: MakeJob, who: Principal) -> Described:
    """Checked like any other; that of somebody of a tenant is that tenant's."""
    if who.tenant is not None:
        asked = fields.get("tenant")
        fields = fields | {"tenant": their_tenant(who, None if asked is None else str(asked))}
    return described(fields, make_job)


def written(wanted: Sequence[Described], who: Principal) -> Operation[list[Upserted]]:
    """Created, or changed to be so; nobody of a tenant changes what is another's, not even by being quicker."""
    keys = [each.schedule.key for each in wanted]
    there = yield from store.page_to_change(ScheduleFilter(keys=keys), len(keys))
    for row in there:
        check_theirs(who, row.tenant, called(row.key))
    found = yield from write(wanted, actor=who.actor)
    known = {row.key for row in there}
    late = [made.key for made in found if made.what != "created" and made.key not in known]
    if late and who.tenant is not None:
        raise Declined(HTTPStatus.CONFLICT, f"{called(late[0])} was made by somebody else just now: look again")
    return found


def _import(body: ImportBody, brought: Brought, wanted: dict[int, Described], who: Principal) -> Operation[None]:
    """In one transaction. Those that are in order are written together; where one is in the way, one by one."""
    if wanted:
        try:
            _count(brought, (yield from written(list(wanted.values()), who)))
        except (SerenoError, Declined):
            yield from _one_by_one(body, brought, wanted, who)
    if body.dry_run:
        raise _Undone


def _accepted(body: ImportBody, brought: Brought, make_job: MakeJob, who: Principal) -> dict[int, Described]:
    """Those that are in order by themselves, by their places."""
    found: dict[int, Described] = {}
    places: dict[str, int] = {}
    for at, fields in enumerate(body.schedules):
        try:
            each = _described(fields, make_job, who)
        except (SerenoError, Declined) as error:
            _refuse(body, brought, at, str(error))
            continue
        if (before := places.setdefault(each.schedule.key, at)) != at:
            _refuse(body, brought, at, f"its key was given before, at {before}")
            continue
        found[at] = each
    return found


def _one_by_one(body: ImportBody, brought: Brought, wanted: dict[int, Described], who: Principal) -> Operation[None]:
    for at, each in wanted.items():
        try:
            _count(brought, (yield from written([each], who)))
        except (SerenoError, Declined) as error:
            _refuse(body, brought, at, str(error))


def _count(brought: Brought, found: Sequence[Upserted]) -> None:
    counts = Counter(str(made.what) for made in found)
    brought.created += counts["created"]
    brought.changed += counts["changed"]
    brought.unchanged += counts["unchanged"]
    brought.changed_keys += [made.key for made in found if made.what == "changed"]


def _refuse(body: ImportBody, brought: Brought, at: int, problem: str) -> None:
    if body.strict:
        raise InvalidArguments(_storable(f"schedules, at {at}: {problem}; nothing was imported"))
    key = body.schedules[at].get("key")
    shown = _storable(key[:80]) if isinstance(key, str) else None
    brought.refused.append(RefusedDefinition(at, shown, _storable(problem)))


def _storable(text: str) -> str:
    """Half a character is shown as a question mark."""
    return text.encode(errors="replace").decode()
