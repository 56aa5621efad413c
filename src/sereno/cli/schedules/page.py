"""`sereno schedule show`: one schedule as text."""

import json
from collections.abc import Iterator
from datetime import tzinfo
from typing import Any

import click

from sereno.cli.options import stdout_is_terminal
from sereno.cli.output import STYLES, counted, terminal, visible
from sereno.cli.schedules.runs import job_object, last_run, run_lines
from sereno.cli.schedules.table import as_object
from sereno.cli.schedules.text import (
    about,
    effective_state,
    full_time,
    instant_lines,
    no_instants,
    rule_words,
    state_words,
)
from sereno.duration import duration_text
from sereno.errors import InvalidSchedule
from sereno.jobs.operations import JobDetail
from sereno.schedules.lists import clock_of, in_words, upcoming_fires
from sereno.schedules.operations import ScheduleDetail
from sereno.schedules.rows import ScheduleRow
from sereno.schedules.rules.when import Cron, decode

WIDTH = 12
MISSED = {
    "skip": "missed instants are not run",
    "latest": "one run covers all missed instants",
    "all": "every missed instant is run",
}
OVERLAP = {
    "skip": "an instant is skipped while the previous run is active",
    "allow": "runs may overlap",
    "queue_one": "one instant waits while the previous run is active",
    "cancel_previous": "the next instant cancels the previous run",
}

CONFLICT = {"keep": "no second job is created", "replace": "a second job replaces the first while that one waits"}


def page_object(detail: ScheduleDetail, last_job: JobDetail | None) -> dict[str, Any]:
    """Return the schedule for JSON output."""
    return {
        "schedule": as_object(detail.schedule),
        "last_job": job_object(last_job),
        "fires": detail.fires,
        "upcoming": upcoming_fires(detail.upcoming),
    }


def show_page(detail: ScheduleDetail, last_job: JobDetail | None, runs: int) -> None:
    """Print a schedule: plain text in a pipe; on a terminal with a coloured state and dim labels."""
    lines = list(_lines(detail, last_job, runs))
    if not stdout_is_terminal():
        for label, text in lines:
            click.echo(f"{label:<{WIDTH}}{text}".rstrip())
        return
    from rich.text import Text  # noqa: PLC0415 - only on a terminal

    console = terminal()
    state = effective_state(detail.schedule, detail.now)
    for label, text in lines:
        style = STYLES.get(state, "") if label == "state" else ""
        shown = Text.assemble((f"{label:<{WIDTH}}", "dim"), (text, style)) if text else Text()
        console.print(shown, soft_wrap=True)


def _lines(detail: ScheduleDetail, last_job: JobDetail | None, runs: int) -> Iterator[tuple[str, str]]:
    row, clock = detail.schedule, clock_of(detail.schedule.rule)
    yield "schedule", visible(row.key)
    yield "state", state_words(row, detail.now)
    yield from _rule(row)
    yield from _job(row)
    yield from _policies(row, clock)
    yield from _counts(detail, clock)
    if last := last_run(row, last_job, clock, detail.now):
        yield "last run", last
    yield "", ""
    upcoming = list(instant_lines(detail.upcoming, clock, detail.now)) or [no_instants(row, detail.now)]
    yield from _listed("next", upcoming)
    if detail.fires:
        yield "", ""
        yield from _listed("runs", run_lines(detail, clock, runs))
    if row.note and len(note := row.note.strip().splitlines()) > 1:
        yield "", ""
        yield from _listed("note", [visible(line) for line in note])


def _rule(row: ScheduleRow) -> Iterator[tuple[str, str]]:
    try:
        when = decode(row.rule)
    except InvalidSchedule as error:
        yield "rule", visible(in_words(row.rule))
        yield "", visible(str(error).splitlines()[0])
        return
    yield "when", rule_words(when, row.shift)
    if isinstance(when, Cron):
        yield "cron", when.expression


def _job(row: ScheduleRow) -> Iterator[tuple[str, str]]:
    yield "task", f"{visible(row.task)}  (queue {visible(row.queue)}, priority {row.priority})"
    yield "arguments", visible(json.dumps(row.args, ensure_ascii=False))
    for label, value in (("tenant", row.tenant), ("tags", " ".join(row.tags or ())), ("trace", row.trace)):
        if value:
            yield label, visible(value)
    if row.unique_key:
        length = (
            "forever"
            if row.unique_forever
            else f"for {duration_text(row.unique_for)}"
            if row.unique_for
            else "while the job is live"
        )
        conflict = row.on_conflict or "keep"
        yield "unique key", visible(f"{row.unique_key}, {length}, {conflict}: {CONFLICT.get(conflict, '')}")
    if row.expires_after is not None:
        yield "expires", f"jobs that have not started within {duration_text(row.expires_after)}"


def _policies(row: ScheduleRow, clock: tzinfo) -> Iterator[tuple[str, str]]:
    limit = f", at most {row.missed_limit:,} within {duration_text(row.missed_window)}" if row.missed == "all" else ""
    yield "missed", f"{row.missed}: {MISSED.get(row.missed, '')}{limit}"
    yield "overlap", f"{row.overlap}: {OVERLAP.get(row.overlap, '')}"
    if row.max_lateness is not None:
        yield "lateness", f"skipped when more than {duration_text(row.max_lateness)} late"
    for label, at in (("starts", row.starts_at), ("ends", row.ends_at)):
        if at is not None:
            yield label, full_time(at, clock)
    if row.max_fires is not None:
        yield "limit", counted(row.max_fires, "fire")
    if row.disable_after is not None:
        yield "gives up", f"after {counted(row.disable_after, 'failed run')} in a row ({row.failed_in_row:,} now)"


def _counts(detail: ScheduleDetail, clock: tzinfo) -> Iterator[tuple[str, str]]:
    row, now = detail.schedule, detail.now
    in_a_row = f" ({row.failed_in_row:,} in a row)" if row.failed_in_row else ""
    counts = f"fired {row.fired:,}, succeeded {row.succeeded:,}, failed {row.failed:,}{in_a_row}"
    yield "counts", counts + (f", missed {row.missed_count:,}" if row.missed_count else "")
    if row.skipped:
        yield "skipped", ", ".join(f"{visible(reason)} {count:,}" for reason, count in row.skipped.items())
    if row.late_p99 is not None:
        yield "late", f"99 % of its fires within {duration_text(row.late_p99)}"
    if row.last_error and row.failed:
        yield "last error", visible(row.last_error)
    if row.held_at is not None:
        yield "held", f"the instant of {full_time(row.held_at, clock)} waits for the previous run"
    who = f" by {visible(row.changed_by)}" if row.changed_by else ""
    yield "changed", f"{full_time(row.changed_at, clock)}{who}, {about((now - row.changed_at).total_seconds())} ago"
    if row.created_at < row.changed_at:
        yield "created", full_time(row.created_at, clock)
    if row.declared_by:
        yield "declared", f"in the code of {visible(row.declared_by)}"


def _listed(label: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        yield "" if number else label, line
