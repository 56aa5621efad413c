"""`sereno job show`: one job as text."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import click

from sereno.cli.options import stdout_is_terminal
from sereno.cli.output import STYLES, short_time, terminal, visible
from sereno.duration import duration_text
from sereno.jobs.operations import JobDetail
from sereno.jobs.queries.rows import AttemptRow, JobRow

# Lines shown of a traceback, counted from its end, which holds the cause.
TRACEBACK_LINES = 12
# Predecessors of a job that are named.
NAMED_JOBS = 20


def show_page(detail: JobDetail) -> None:
    """Print a job: plain text in a pipe; on a terminal with a coloured state and dim labels."""
    # A job may hold user input with terminal sequences.
    lines = [(label, visible(text)) for label, text in _lines(detail)]
    if not stdout_is_terminal():
        for label, text in lines:
            click.echo(f"{label:<12}{text}" if label else text)
        return
    from rich.text import Text  # noqa: PLC0415 - only on a terminal

    console = terminal()
    for label, text in lines:
        style = STYLES.get(detail.job.state, "") if label == "state" else ""
        console.print(Text.assemble((f"{label:<12}" if label else "", "dim"), (text, style)), soft_wrap=True)


def _lines(detail: JobDetail) -> Iterator[tuple[str, str]]:
    job = detail.job
    yield "job", f"{job.id}  {job.task}"
    yield "state", job.state + (" (stop requested)" if job.cancel_requested else "")
    yield "queue", f"{job.queue}, priority {job.priority}"
    for label, value in (
        ("tenant", job.tenant),
        ("unique key", job.unique_key),
        ("tags", " ".join(job.tags or ())),
        ("trace", job.trace),
    ):
        if value:
            yield label, value
    yield from _keys(job.keys or {})
    yield from _links(job)
    if job.schedule is not None:
        yield "schedule", job.schedule + (f", instant {_moment(job.planned_at)}" if job.planned_at else "")
    yield from _times(job)
    yield (
        "counts",
        (
            f"attempt {job.attempt}, failures {job.failures}, crashes {job.crashes}, "
            f"snoozes {job.snoozes}, releases {job.releases}"
        ),
    )
    if job.session_id is not None:
        yield "session", f"{job.session_id}" + (f" ({job.host}, pid {job.pid})" if job.host else "")
    yield "arguments", json.dumps(job.args, ensure_ascii=False)
    if job.result is not None:
        yield "result", json.dumps(job.result, ensure_ascii=False)
    elif job.state == "succeeded" and job.reason:
        yield "reason", job.reason
    if detail.waits_for is not None:
        until = f" until {_moment(detail.waits_for.until)}" if detail.waits_for.until else ", without a timeout"
        yield "waits for", f"the signal {detail.waits_for.name}{until}"
    if detail.progress is not None:
        note = f", {detail.progress.note}" if detail.progress.note else ""
        yield "progress", f"{detail.progress.fraction:.0%}{note} ({short_time(detail.progress.updated_at)})"
    for step in detail.steps:
        yield "step", f"{step.name} done by attempt {step.attempt}: {json.dumps(step.result, ensure_ascii=False)}"
    for attempt in detail.attempts:
        yield "", ""
        yield from _attempt(attempt)


def _keys(keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, key, cost, *_ in keys.get("limits", ()):
        yield "limit", name + (f", key {key}" if key else "") + (f", takes {cost}" if cost != 1 else "")
    if "fair" in keys:
        yield "fair key", str(keys["fair"])
    if "order" in keys:
        yield "order key", str(keys["order"]) + (" (a dead letter blocks it)" if keys.get("blocks") else "")


def _links(job: JobRow) -> Iterator[tuple[str, str]]:
    if job.group_id is not None:
        yield "group", str(job.group_id)
    if job.after:
        more = f" and {len(job.after) - NAMED_JOBS:,} more" if len(job.after) > NAMED_JOBS else ""
        yield "after", f"{' '.join(map(str, job.after[:NAMED_JOBS]))}{more}; on dead: {job.on_dead}"
    if job.after_group is not None:
        yield "after", f"all jobs of group {job.after_group}"


def _times(job: JobRow) -> Iterator[tuple[str, str]]:
    yield "created", _moment(job.created_at)
    yield "run at", _moment(job.run_at)
    if job.started_at is not None:
        yield "started", _moment(job.started_at)
    if job.finished_at is not None:
        yield "finished", _moment(job.finished_at)
    if job.expires_at is not None:
        yield "expires", _moment(job.expires_at)


def _attempt(attempt: AttemptRow) -> Iterator[tuple[str, str]]:
    took = ""
    if attempt.finished_at is not None:
        took = f" after {duration_text(max(0.0, (attempt.finished_at - attempt.started_at).total_seconds()))}"
    yield f"attempt {attempt.number}", f"{attempt.outcome}{took}, started {_moment(attempt.started_at)}"
    if attempt.reason:
        yield "  reason", attempt.reason
    if attempt.error_type:
        yield "  error", f"{attempt.error_type}: {attempt.error_message or ''}".rstrip(": ")
    if attempt.traceback:
        lines = attempt.traceback.rstrip().splitlines()
        for line in (["…"] if len(lines) > TRACEBACK_LINES else []) + lines[-TRACEBACK_LINES:]:
            yield "", f"    {line}"


def _moment(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + moment.astimezone().strftime(" %Z")
