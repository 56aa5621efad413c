"""Create or change one schedule, or import many."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from sereno.access.identity import Principal
from sereno.database.statement import Operation
from sereno.error_text import storable
from sereno.errors import InvalidArguments, SerenoError
from sereno.jobs.filters import ScheduleFilter
from sereno.jobs.job import JobOptions, NewJob
from sereno.schedules import store
from sereno.schedules.bulk_write import DescribedSchedule, described, unchecked_job, write
from sereno.schedules.importers.definition import MakeJob
from sereno.schedules.rules.when import describe
from sereno.schedules.store import UpsertResult
from sereno.server.api.bounds import Tags, check_few
from sereno.server.api.router import Router, Who
from sereno.server.api.schedules.selection import Key, Text, called
from sereno.server.shared.context import ServerContext, check_task
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.tenant_scope import check_theirs, their_tenant
from sereno.zones import moment

MOST_IMPORTED = 1000
MOST_FIELDS = 100

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


@dataclass
class WrittenSchedule:
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
class ImportAnswer:
    """What became of an import; with `dry_run`, what would."""

    dry_run: bool
    created: int = 0
    changed: int = 0
    unchanged: int = 0
    changed_keys: list[str] = field(default_factory=list)
    refused: list[RefusedDefinition] = field(default_factory=list)


class _RolledBack(Exception):  # noqa: N818 - no error: a dry run ends so
    """Nothing of the transaction is kept."""


def routes(context: ServerContext, router: Router) -> None:
    """`PUT /schedules/{key}` and `POST /schedules/import`."""
    also = [HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT]

    @router.operation("PUT", "/schedules/{key:path}", role="admin", of_tenants=True, also=also)
    async def put(key: Key, body: Definition, who: Who, unchecked: Unchecked = False) -> WrittenSchedule:
        """Make a schedule, or change the one of this key to be so. Said again unchanged, it is not touched."""
        make_job = await _job_maker(context, who, unchecked)
        wanted = await asyncio.to_thread(_described, {"key": key, **body.model_dump()}, make_job, who)
        (made,) = await context.change(written([wanted], who))
        at = None if made.next_run_at is None else moment(made.next_run_at)
        return WrittenSchedule(made.id, made.key, made.what, made.state, at, describe(wanted.schedule.when))

    @router.operation("POST", "/schedules/import", role="admin", of_tenants=True)
    async def bring_in(body: ImportBody, who: Who, unchecked: Unchecked = False) -> ImportAnswer:
        """Definitions out of an export. One that is refused does not stop the others, unless `strict`."""
        brought = ImportAnswer(body.dry_run)
        make_job = await _job_maker(context, who, unchecked)
        wanted = await asyncio.to_thread(_accepted, body, brought, make_job, who)
        with suppress(_RolledBack):
            await context.change(_import(body, brought, wanted, who))
        return brought


async def _job_maker(context: ServerContext, who: Principal, unchecked: bool) -> MakeJob:
    if not unchecked:
        return await context.job_maker(who)
    allowed = await context.open_tasks(who)

    def made(task: str, raw: bytes, options: JobOptions) -> NewJob:
        check_task(task, allowed)
        return unchecked_job(task, raw, options)

    return made


def _described(fields: dict[str, Any], make_job: MakeJob, who: Principal) -> DescribedSchedule:
    """Checked like any other; that of somebody of a tenant is that tenant's."""
    if who.tenant is not None:
        asked = fields.get("tenant")
        fields = fields | {"tenant": their_tenant(who, None if asked is None else str(asked))}
    return described(fields, make_job)


def written(wanted: Sequence[DescribedSchedule], who: Principal) -> Operation[list[UpsertResult]]:
    """Created, or changed to be so; nobody of a tenant changes what is another's, not even by being quicker."""
    keys = [each.schedule.key for each in wanted]
    there = yield from store.page_to_change(ScheduleFilter(keys=keys), len(keys))
    for row in there:
        check_theirs(who, row.tenant, called(row.key))
    found = yield from write(wanted, actor=who.actor)
    known = {row.key for row in there}
    late = [made.key for made in found if made.what != "created" and made.key not in known]
    if late and who.tenant is not None:
        raise HTTPError(HTTPStatus.CONFLICT, f"{called(late[0])} was made by somebody else just now: look again")
    return found


def _import(
    body: ImportBody, brought: ImportAnswer, wanted: dict[int, DescribedSchedule], who: Principal
) -> Operation[None]:
    """In one transaction. Those that are in order are written together; where one is in the way, one by one."""
    if wanted:
        try:
            _count(brought, (yield from written(list(wanted.values()), who)))
        except (SerenoError, HTTPError):
            yield from _one_by_one(body, brought, wanted, who)
    if body.dry_run:
        raise _RolledBack


def _accepted(
    body: ImportBody, brought: ImportAnswer, make_job: MakeJob, who: Principal
) -> dict[int, DescribedSchedule]:
    """Those that are in order by themselves, by their places."""
    found: dict[int, DescribedSchedule] = {}
    places: dict[str, int] = {}
    for at, fields in enumerate(body.schedules):
        try:
            each = _described(fields, make_job, who)
        except (SerenoError, HTTPError) as error:
            _refuse(body, brought, at, str(error))
            continue
        if (before := places.setdefault(each.schedule.key, at)) != at:
            _refuse(body, brought, at, f"its key was given before, at {before}")
            continue
        found[at] = each
    return found


def _one_by_one(
    body: ImportBody, brought: ImportAnswer, wanted: dict[int, DescribedSchedule], who: Principal
) -> Operation[None]:
    for at, each in wanted.items():
        try:
            _count(brought, (yield from written([each], who)))
        except (SerenoError, HTTPError) as error:
            _refuse(body, brought, at, str(error))


def _count(brought: ImportAnswer, found: Sequence[UpsertResult]) -> None:
    counts = Counter(str(made.what) for made in found)
    brought.created += counts["created"]
    brought.changed += counts["changed"]
    brought.unchanged += counts["unchanged"]
    brought.changed_keys += [made.key for made in found if made.what == "changed"]


def _refuse(body: ImportBody, brought: ImportAnswer, at: int, problem: str) -> None:
    if body.strict:
        raise InvalidArguments(storable(f"schedules, at {at}: {problem}; nothing was imported"))
    key = body.schedules[at].get("key")
    shown = storable(key[:80]) if isinstance(key, str) else None
    brought.refused.append(RefusedDefinition(at, shown, storable(problem)))
