"""Long operations on the archive, run by a worker as jobs: verify files, restore rows, export rows to a file."""

import hashlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Path, Response
from pydantic import AwareDatetime, BaseModel, Field

from sereno.access.identity import Principal
from sereno.archive import jobs as archive_jobs
from sereno.archive.jobs import ArchiveJob, check_extract
from sereno.archive.operations import OFF
from sereno.archive.orders import TASKS, ExtractOrder, Form, Order, RestoreOrder, VerifyOrder
from sereno.archive.queries import kind_names
from sereno.archive.restore import MOST, MOST_KEYS, checked_request
from sereno.database.json_values import encoder
from sereno.database.statement import Operation
from sereno.duration import seconds
from sereno.errors import InvalidArguments, JobNotFound, Refused
from sereno.jobs import operations as jobs
from sereno.jobs.job import JobOptions
from sereno.server.api.jobs.limits import Length
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.text import NAME_LIMIT

JobId = Annotated[int, Path(ge=0, lt=2**63)]
Kind = Annotated[str, Field(min_length=1, max_length=NAME_LIMIT, description="jobs, deliveries, …, or schema.table.")]
Key = Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)]
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class ArchiveVerifyBody(BaseModel):
    """Without fields: every file. `sample`: this number of random files."""

    batch: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    sample: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    since: Annotated[AwareDatetime | None, Field(description="Files that were verified since this time.")] = None


class RestoreBody(BaseModel):
    """Rows by their `ids`, or those whose time is between `from` and `to`; they are retained for the duration `for`.

    `dry_run`: only count them. `without`: columns that the table no longer has.
    """

    kind: Kind
    ids: list[Number | Key] | None = Field(None, min_length=1, max_length=MOST_KEYS)
    from_at: AwareDatetime | None = Field(None, alias="from")
    to_at: AwareDatetime | None = Field(None, alias="to")
    keep: Length = Field("30d", alias="for")
    without: list[Key] = Field([], max_length=100)
    dry_run: bool = False
    all: bool = Field(False, description=f"Confirms the restore of more than {MOST:,} rows.")


class ExportBody(BaseModel):
    """Rows whose time is between `from` and `to`; without both, all rows."""

    kind: Kind
    form: Form = "parquet"
    from_at: AwareDatetime | None = Field(None, alias="from")
    to_at: AwareDatetime | None = Field(None, alias="to")


@dataclass
class StartedJob:
    """The job that does it. `created`: false if it already waits or runs. `progress`: the path of its progress."""

    job: int
    created: bool
    progress: str


def routes(context: ServerContext) -> Router:
    """`/archive/verify`, `/archive/restore`, `/archive/export`, `/archive/work`."""
    router = Router(context, "archive")

    @router.operation("POST", "/archive/verify", role="admin", status_code=202)
    async def verify(who: Who, response: Response, body: ArchiveVerifyBody | None = None) -> StartedJob:
        """Read files again and compare them with their checksums in the database. Corrupt files are marked."""
        wanted = body or ArchiveVerifyBody()
        order = VerifyOrder(requested_by=who.actor, batch=wanted.batch, sample=wanted.sample, since=wanted.since)
        return await _begun(context, order, response)

    @router.operation("POST", "/archive/restore", role="admin", status_code=202)
    async def restore(body: RestoreBody, who: Who, response: Response) -> StartedJob:
        """Restore rows for a while, jobs with their attempts. Rows that already exist are left alone."""
        return await _begun(context, _restore_order(body, who), response)

    @router.operation("POST", "/archive/export", role="admin", status_code=202)
    async def export(body: ExportBody, who: Who, response: Response) -> StartedJob:
        """Write archived rows of a time range to one file; the result has its path. Needs `sereno[query]`."""
        order = ExtractOrder(
            requested_by=who.actor, kind=body.kind, form=body.form, from_at=body.from_at, to_at=body.to_at
        )
        return await _begun(context, order, response)

    @router.operation("GET", "/archive/work/{job_id}", role="viewer")
    async def show_work(job_id: JobId) -> ArchiveJob:
        """The progress and result of an archive job. `POST /jobs/cancel` stops it between two files."""
        return await context.read(_there(job_id))

    return router


def _restore_order(body: RestoreBody, who: Principal) -> RestoreOrder:
    return RestoreOrder(
        requested_by=who.actor,
        kind=body.kind,
        ids=None if body.ids is None else list(dict.fromkeys(map(str, body.ids))),
        from_at=body.from_at,
        to_at=body.to_at,
        keep=seconds(body.keep),
        without=tuple(body.without),
        dry_run=body.dry_run,
        yes=body.all,
    )


async def _begun(context: ServerContext, order: Order, response: Response) -> StartedJob:
    """Enqueue the job; the same order, while it waits or runs, returns the same job."""
    client = context.app.archive
    await context.read(_check(order, is_on=client.is_on))
    client.register()
    task, arguments = TASKS[type(order)], encoder.encode({"order": order})
    key = f"{task} {hashlib.sha256(arguments).hexdigest()[:32]}"
    wanted = context.app.new_job(task, arguments, JobOptions(unique_key=key))
    (made,) = await context.change(jobs.enqueue([wanted], actor=order.requested_by))
    response.headers["Location"] = f"work/{made.id}"
    return StartedJob(made.id, made.created, f"/archive/work/{made.id}")


def _check(order: Order, *, is_on: bool) -> Operation[None]:
    """Refuse an invalid order at once, with the parameter names of the API."""
    if not is_on and not (yield from kind_names()):
        raise Refused(OFF)
    if isinstance(order, VerifyOrder):
        return
    try:
        if isinstance(order, RestoreOrder):
            yield from checked_request(archive_jobs.request_of(order))
        else:
            yield from check_extract(order)
    except InvalidArguments as error:
        raise InvalidArguments(str(error).replace("--from", "from").replace("--to", "to")) from None


def _there(job_id: int) -> Operation[ArchiveJob]:
    try:
        return (yield from archive_jobs.show(job_id))
    except JobNotFound:
        raise HTTPError(HTTPStatus.NOT_FOUND, f"there is no job {job_id} of the archive") from None
