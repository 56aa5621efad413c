"""Create or change one schedule, or import many."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from msgspec.structs import asdict
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from sereno.access.identity import Principal
from sereno.database.statement import Operation
from sereno.error_text import storable
from sereno.errors import InvalidArguments, SerenoError
from sereno.jobs.job import JobOptions, NewJob
from sereno.schedules import operations as schedules
from sereno.schedules.bulk_write import DescribedSchedule, described, unchecked_job, write
from sereno.schedules.importers.definition import MakeJob
from sereno.schedules.rows import UpsertResult
from sereno.schedules.rules.when import describe
from sereno.server.api.bounds import Tags, check_few
from sereno.server.api.responses import json_response, response_model
from sereno.server.api.router import Router, Who
from sereno.server.api.schedules.selection import Key, Text, called
from sereno.server.shared.context import ServerContext, check_task
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.tenant_scope import check_theirs, their_tenant

MOST_IMPORTED = 1000
MOST_FIELDS = 100

Length = Annotated[str, Field(max_length=100)] | float
Note = Annotated[Text | None, Field(description="The reason, shown with the schedule.")]
Unchecked = Annotated[bool, Query(description="Allow a task that the application of this server does not know.")]


class ScheduleDefinition(BaseModel):
    """The definition of a schedule as in an export, without its key. Durations are seconds or text such as "15m"."""

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
    # Too many fields give one error, not one each.
    _few = model_validator(mode="before")(lambda given: check_few(given, MOST_FIELDS))

    enabled: bool = Field(True, description="False disables it; true does not resume one that was paused or disabled.")
    note: Note = None


class ImportBody(BaseModel):
    """`strict`: all of them, or none. `dry_run`: only say what would be done."""

    schedules: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_IMPORTED)
    strict: bool = False
    dry_run: bool = False


class WrittenSchedule(UpsertResult, frozen=True):
    """`what`: created, changed or unchanged. `when`: the rule in words."""

    when: str


@dataclass
class RefusedDefinition:
    """`at`: its position in the list, from 0."""

    at: int
    key: str | None
    problem: str


@dataclass
class ImportResponse:
    """The result of an import; with `dry_run`, what it would be."""

    dry_run: bool
    created: int = 0
    changed: int = 0
    unchanged: int = 0
    changed_keys: list[str] = field(default_factory=list)
    refused: list[RefusedDefinition] = field(default_factory=list)


class _RolledBack(Exception):  # noqa: N818 - no error: it ends a dry run
    """Rolls the transaction back."""


def routes(context: ServerContext, router: Router) -> None:
    """`PUT /schedules/{key}` and `POST /schedules/import`."""
    also = [HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT]

    @router.operation(
        "PUT",
        "/schedules/{key:path}",
        role="admin",
        of_tenants=True,
        also=also,
        response_model=response_model(WrittenSchedule),
    )
    async def put(key: Key, body: ScheduleDefinition, who: Who, unchecked: Unchecked = False) -> Response:
        """Create a schedule, or replace the one of this key. An identical definition changes nothing."""
        make_job = await _job_maker(context, who, unchecked)
        wanted = await asyncio.to_thread(_described, {"key": key, **body.model_dump()}, make_job, who)
        (made,) = await context.change(written([wanted], who))
        return json_response(WrittenSchedule(**asdict(made), when=describe(wanted.schedule.when)))

    @router.operation("POST", "/schedules/import", role="admin", of_tenants=True)
    async def bring_in(body: ImportBody, who: Who, unchecked: Unchecked = False) -> ImportResponse:
        """Import definitions of an export. A refused one does not stop the others, unless `strict`."""
        result = ImportResponse(body.dry_run)
        make_job = await _job_maker(context, who, unchecked)
        wanted = await asyncio.to_thread(_accepted, body, result, make_job, who)
        with suppress(_RolledBack):
            await context.change(_import(body, result, wanted, who))
        return result


async def _job_maker(context: ServerContext, who: Principal, unchecked: bool) -> MakeJob:
    if not unchecked:
        return await context.job_maker(who)
    allowed = await context.open_tasks(who)

    def made(task: str, raw: bytes, options: JobOptions) -> NewJob:
        check_task(task, allowed)
        return unchecked_job(task, raw, options)

    return made


def _described(fields: dict[str, Any], make_job: MakeJob, who: Principal) -> DescribedSchedule:
    """Check a definition; that of a tenant's user belongs to that tenant."""
    if who.tenant is not None:
        requested = fields.get("tenant")
        fields = fields | {"tenant": their_tenant(who, None if requested is None else str(requested))}
    return described(fields, make_job)


def written(wanted: Sequence[DescribedSchedule], who: Principal) -> Operation[list[UpsertResult]]:
    """Create or change schedules; a tenant's user cannot change one of another tenant, not even in a race."""
    there = yield from schedules.lock([each.schedule.key for each in wanted])
    for row in there:
        check_theirs(who, row.tenant, called(row.key))
    found = yield from write(wanted, actor=who.actor)
    known = {row.key for row in there}
    late = [made.key for made in found if made.what != "created" and made.key not in known]
    if late and who.tenant is not None:
        raise HTTPError(HTTPStatus.CONFLICT, f"{called(late[0])} was created by another request just now: try again")
    return found


def _import(
    body: ImportBody, result: ImportResponse, wanted: dict[int, DescribedSchedule], who: Principal
) -> Operation[None]:
    """In one transaction. Valid definitions are written together; if one of them fails, one by one."""
    if wanted:
        try:
            _count(result, (yield from written(list(wanted.values()), who)))
        except (SerenoError, HTTPError):
            yield from _one_by_one(body, result, wanted, who)
    if body.dry_run:
        raise _RolledBack


def _accepted(
    body: ImportBody, result: ImportResponse, make_job: MakeJob, who: Principal
) -> dict[int, DescribedSchedule]:
    """Return the definitions that are valid on their own, by their position."""
    found: dict[int, DescribedSchedule] = {}
    places: dict[str, int] = {}
    for at, fields in enumerate(body.schedules):
        try:
            each = _described(fields, make_job, who)
        except (SerenoError, HTTPError) as error:
            _refuse(body, result, at, str(error))
            continue
        if (before := places.setdefault(each.schedule.key, at)) != at:
            _refuse(body, result, at, f"its key was given before, at {before}")
            continue
        found[at] = each
    return found


def _one_by_one(
    body: ImportBody, result: ImportResponse, wanted: dict[int, DescribedSchedule], who: Principal
) -> Operation[None]:
    for at, each in wanted.items():
        try:
            _count(result, (yield from written([each], who)))
        except (SerenoError, HTTPError) as error:
            _refuse(body, result, at, str(error))


def _count(result: ImportResponse, found: Sequence[UpsertResult]) -> None:
    counts = Counter(str(made.what) for made in found)
    result.created += counts["created"]
    result.changed += counts["changed"]
    result.unchanged += counts["unchanged"]
    result.changed_keys += [made.key for made in found if made.what == "changed"]


def _refuse(body: ImportBody, result: ImportResponse, at: int, problem: str) -> None:
    if body.strict:
        raise InvalidArguments(storable(f"schedules, at {at}: {problem}; nothing was imported"))
    key = body.schedules[at].get("key")
    shown = storable(key[:80]) if isinstance(key, str) else None
    result.refused.append(RefusedDefinition(at, shown, storable(problem)))
