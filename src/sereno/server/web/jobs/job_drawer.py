"""Details of one job beside the list: why it is in its state, attempts, arguments, and other runs of its task."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from markupsafe import Markup

from sereno.access.masking import masked
from sereno.archive.queries import ArchivedLocation
from sereno.bulk.operations import ORIGIN
from sereno.errors import JobNotFound
from sereno.jobs import operations as jobs
from sereno.jobs.filters import JobFilter
from sereno.jobs.job_stream import last_chunks
from sereno.jobs.lifecycle import FINAL
from sereno.jobs.operations import CANCELLABLE, DELETABLE, JobDetail
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.links import JobLinks, job_links
from sereno.jobs.queries.reveal import hidden
from sereno.jobs.queries.rows import AttemptRow, JobLine, JobRow
from sereno.jobs.queries.why import why
from sereno.server.shared.cache import Cached
from sereno.server.web import cursor
from sereno.server.web.archive.archived import archived
from sereno.server.web.charts import job_charts
from sereno.server.web.charts.job_charts import SiblingJob
from sereno.server.web.command_examples import copies
from sereno.server.web.monitoring import tracebacks
from sereno.server.web.monitoring.tracebacks import ParsedTraceback
from sereno.server.web.page_request import PageRequest
from sereno.server.web.times import clock, length

RUNS = 50
# Other runs of the task are searched among this number of finished jobs, at this interval in seconds.
AMONG = 20_000
RUNS_FRESH = 10.0
RUNS_TIMEOUT = 0.5
# Characters: a step's result or the arguments may have a megabyte, and a page shows the beginning.
LONGEST = 20_000
# Chunks of a running job that are shown, and the characters of each.
CHUNKS = 50
LONGEST_CHUNK = 2_000


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """An attempt and its parsed traceback."""

    row: AttemptRow
    traceback: ParsedTraceback | None

    @property
    def seconds(self) -> float | None:
        if self.row.finished_at is None:
            return None
        return (self.row.finished_at - self.row.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class JobDrawer:
    """What is shown of one job. `detail` is masked; `is_masked`: whether something had to be."""

    number: str
    detail: JobDetail | None = None
    age: float = 0.0
    is_busy: bool = False
    why: Sequence[str] = ()
    attempts: Sequence[AttemptLine] = ()
    arguments: str = ""
    result: str = ""
    is_masked: bool = False
    is_cut: bool = False
    steps: Sequence[tuple[Any, str]] = ()
    # The newest ones of a running job, one line each.
    chunks: Sequence[str] = ()
    timeline: Markup | None = None
    siblings: Markup | None = None
    runs: int = 0
    retry_of: str | None = None
    links: JobLinks | None = None
    copies: dict[str, str] | None = None
    # Where it is or may be, if it is no longer in the database.
    archived: Sequence[ArchivedLocation] = ()
    again: str = ""

    @property
    def is_ended(self) -> bool:
        return self.detail is not None and self.detail.job.state in FINAL

    @property
    def can_be_cancelled(self) -> bool:
        return self.detail is not None and self.detail.job.state in CANCELLABLE

    @property
    def can_be_deleted(self) -> bool:
        return self.detail is not None and self.detail.job.state in DELETABLE


async def drawer(page: PageRequest, number: str) -> JobDrawer:
    """Return the details of a job; a job of another tenant is treated as missing."""
    job_id = cursor.number(number)
    if job_id is None:
        return JobDrawer(number[:30])
    try:
        seen = await page.load(("job", job_id), partial(jobs.show, job_id), keep=False)
    except JobNotFound:
        return JobDrawer(number, archived=await archived(page, "job", job_id))
    if seen.value is None:
        return JobDrawer(number, is_busy=True)
    job = seen.value.job
    if page.who.tenant is not None and job.tenant != page.who.tenant:
        return JobDrawer(number)
    tenant = page.who.tenant
    reasons, others, links, chunks = await asyncio.gather(
        # The text for users of a tenant differs: it is cached apart.
        page.load(("why", job.id, tenant), partial(why, job.id, tenant=tenant)),
        _others(page, job),
        page.load(("links", job.id, tenant), partial(job_links, job, tenant=tenant)),
        _chunks(page, job),
    )
    return replace(_drawn(page, seen, reasons.value or [], others.value or [], links.value), chunks=chunks)


async def _chunks(page: PageRequest, job: JobRow) -> list[str]:
    """Return the newest chunks that a running job has emitted, as lines of text."""
    if job.state != "running":
        return []
    found = await page.load(("chunks", job.id), partial(last_chunks, job.id, CHUNKS), keep=False)
    return [_line(chunk)[:LONGEST_CHUNK] for chunk in masked(found.value or [])]


def _line(chunk: Any) -> str:
    return chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False)


async def _others(page: PageRequest, job: JobRow) -> Cached[list[JobLine]]:
    """Return the newest finished jobs of its task; for a tenant's user, those of the tenant."""
    wanted = JobFilter(task=job.task, states=FINAL, tenant=page.who.tenant, window=AMONG)
    return await page.load(
        ("runs", job.task, page.who.tenant),
        partial(job_queries.list_jobs, wanted, RUNS),
        fresh=RUNS_FRESH,
        timeout=RUNS_TIMEOUT,
    )


def _drawn(
    page: PageRequest,
    seen: Cached[JobDetail],
    reasons: Sequence[str],
    others: Sequence[JobLine],
    links: JobLinks | None,
) -> JobDrawer:
    assert seen.value is not None
    detail = hidden(seen.value)
    job = detail.job
    arguments = _pretty(job.args)
    runs = _runs(page, job, others)
    beside = page.link(job=None)
    origin = next((tag.removeprefix(ORIGIN) for tag in job.tags or () if tag.startswith(ORIGIN)), None)
    return JobDrawer(
        str(job.id),
        detail,
        seen.age,
        why=reasons,
        attempts=[AttemptLine(each, tracebacks.read(each.traceback)) for each in reversed(detail.attempts)],
        arguments=arguments[:LONGEST],
        result="" if job.result is None else _pretty(job.result)[:LONGEST],
        is_masked=job.args != seen.value.job.args,
        is_cut=len(arguments) > LONGEST,
        steps=[(step, _pretty(step.result)[:LONGEST]) for step in detail.steps],
        timeline=job_charts.timeline(job, detail.attempts, page.now, page.say),
        siblings=job_charts.siblings(runs, page.say("How long the last runs of this task took"))
        if len(runs) > 1
        else None,
        runs=len(runs),
        links=None if links is None or links.is_empty else links,
        retry_of=origin if origin and origin.isdecimal() else None,
        copies=copies(page, cli=["job", "show", str(job.id)], path=f"jobs/{job.id}"),
        again=f"{beside}{'&' if '?' in beside else '?'}job={{id}}",
    )


def _runs(page: PageRequest, job: JobRow, others: Sequence[JobLine]) -> list[SiblingJob]:
    """Return the runs from the oldest to the newest, with this one if it has run."""
    found: dict[int, JobLine | JobRow] = {line.id: line for line in others if line.id != job.id}
    found[job.id] = job
    runs = []
    for each in sorted(found.values(), key=lambda one: one.id):
        if each.started_at is None:
            continue
        seconds = max(0.0, ((each.finished_at or page.now) - each.started_at).total_seconds())
        at = clock(each.started_at, page.zone, "%Y-%m-%d %H:%M:%S")
        words = f"{each.id} · {page.say(each.state)} · {length(seconds)} · {at}"
        runs.append(SiblingJob(seconds, each.state, words, page.link(job=each.id), each.id == job.id))
    return runs


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
