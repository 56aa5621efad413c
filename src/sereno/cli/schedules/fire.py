"""`sereno schedule run`, `tick` and `backfill`: fires on request."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import RateType, context_options, output_option
from sereno.cli.output import chosen_form, counted, show_json, visible
from sereno.cli.schedules.options import MomentsType, ask, existing, is_interactive
from sereno.errors import InvalidArguments, Refused

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.jobs.job import EnqueuedJob
    from sereno.schedules.operations import Backfill

# Instants that are listed before a backfill; the others are only counted.
LISTED = 20


@click.command("run", epilog="Example: sereno schedule run reconcile:r42")
@click.argument("key")
@output_option
@context_options
def run_now(context: "CommandContext", key: str, form: str) -> None:
    """Fire a schedule now and print the job's id, regardless of its rule and of active runs."""
    from sereno.schedules.operations import run_now as operation  # noqa: PLC0415 - slow to import; --help needs none

    existing(context, key)
    made = context.run(operation(key))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(made, indent=2 if form == "json" else 0)
        return
    click.echo(made.id)
    click.echo("Enqueued." if made.created else "A job with its unique key already exists: this is it.", err=True)


@dataclass
class PassedInstant:
    """The result of one pass over due schedules."""

    fires: int = 0
    skips: int = 0
    runs_ended: int = 0
    parked: list[dict[str, str]] = field(default_factory=list)


@click.command(epilog="Example: sereno schedule tick -o json")
@output_option
@context_options
def tick(context: "CommandContext", form: str) -> None:
    """Fire due schedules once and exit. Use it where the system's cron replaces a scheduler."""
    from sereno.database.driver import drive  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.ticker import Ticker, passes  # noqa: PLC0415 - slow to import; --help needs none

    done = drive(passes(Ticker()), context.run)
    parked = [{"key": key, "why": why} for key, why in done.parked]
    passed = PassedInstant(done.fires, done.skips, done.runs_ended, parked)
    if chosen_form(form) in ("json", "jsonl"):
        show_json(passed, indent=2 if form == "json" else 0)
        return
    fires = "1 fire" if passed.fires == 1 else f"{passed.fires:,} fires"
    click.echo(f"{fires}, {passed.skips:,} skipped, {len(passed.parked):,} parked.")
    for key, why in done.parked:
        click.echo(visible(f"Parked: {key}: {why}"), err=True)


@click.command(epilog="Example: sereno schedule backfill reconcile:r42 2026-10-01 2026-11-01 --rate 5/s --dry-run")
@click.argument("key")
@click.argument("start", metavar="FROM")
@click.argument("end", metavar="TO")
@click.option("--rate", type=RateType(), help="Jobs per second, such as 50/s.  [default: all at once]")
@click.option("--dry-run", is_flag=True, help="List the instants, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@output_option
@context_options
def backfill(
    context: "CommandContext", key: str, start: str, end: str, rate: float | None, dry_run: bool, yes: bool, form: str
) -> None:
    """Run past instants, each at most once. Dates are in the schedule's time zone; "7d" means 7 days ago."""
    plan = _planned(context, key, start, end)
    wanted = [at for at in plan.instants if at not in plan.done]
    as_json = chosen_form(form) in ("json", "jsonl")
    if not as_json:
        _list_instants(plan, wanted, rate)
    if dry_run:
        if as_json:
            _show_plan(plan, wanted, form)
        return
    if wanted and not yes:
        _confirm(_jobs_to_make(plan, wanted))
    jobs = _make(context, key, wanted, rate) if wanted else []
    if as_json or wanted:
        _report_made(jobs, len(wanted) - len(jobs), form)


def _confirm(jobs: str) -> None:
    if not is_interactive():
        raise Refused(f"this would create {jobs}: check with --dry-run, confirm with --yes")
    ask(f"Create {jobs}?")


def _jobs_to_make(plan: "Backfill", wanted: Sequence[datetime]) -> str:
    """Return the number of jobs to create; an upper bound if instants can share a unique key and thus a job."""
    jobs = counted(len(wanted), "job")
    return f"at most {jobs}" if plan.schedule.unique_key and len(wanted) > 1 else jobs


def _report_made(jobs: "Sequence[EnqueuedJob]", left: int, form: str) -> None:
    made = [job.id for job in jobs if job.created]
    there = len(jobs) - len(made)
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"jobs": made, "there_before": there, "left": left}, indent=2 if form == "json" else 0)
        return
    click.echo(f"Created {counted(len(made), 'job')}.")
    if there:
        whose = "its" if there == 1 else "their"
        click.echo(f"{counted(there, 'instant')} created no job: a job with {whose} unique key exists.", err=True)
    if left:
        click.echo(f"Skipped, because they were recorded before: {counted(left, 'instant')}.", err=True)


def _planned(context: "CommandContext", key: str, start: str, end: str) -> "Backfill":
    from sereno.database.clock import clock  # noqa: PLC0415 - see above
    from sereno.schedules.lists import clock_of  # noqa: PLC0415 - see above
    from sereno.schedules.operations import backfill_plan  # noqa: PLC0415 - see above
    from sereno.zones import moment  # noqa: PLC0415 - slow to import; --help needs none

    row = existing(context, key)
    now = moment(context.run(clock()))
    there = clock_of(row.rule)
    first, last = (
        MomentsType(name, there, now=now, back=True).read(text) for name, text in (("FROM", start), ("TO", end))
    )
    if last > now:
        raise InvalidArguments(
            f"a backfill is for the past, and TO ({_typed(end, there)}) is in the future: the schedule will fire it; "
            '"0s" as TO means until now'
        )
    if last <= first:
        cure = "swap them" if last < first else "the range is empty"
        raise InvalidArguments(f"TO ({_typed(end, there)}) is not after FROM ({start}): {cure}")
    return context.run(backfill_plan(key, first, last))


def _typed(text: str, clock: tzinfo) -> str:
    """Return the argument as written; a date without an offset is followed by the schedule's zone."""
    try:
        bare = datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        bare = False
    return f"{text}, {clock}" if bare else text


def _make(context: "CommandContext", key: str, wanted: Sequence[datetime], rate: float | None) -> "list[EnqueuedJob]":
    from sereno.schedules.operations import BackfillPace, batches  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.operations import backfill as operation  # noqa: PLC0415 - see above

    made: list[EnqueuedJob] = []
    pace = BackfillPace(rate)
    with progress(len(wanted), "Creating jobs") as bar:
        for some in batches(wanted):
            made += context.run(operation(key, some, pace=pace))
            bar.update(len(some))
    return made


def progress(length: int, label: str) -> Any:
    """Return a progress bar on stderr, hidden unless that is a terminal."""
    return click.progressbar(length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())


def _list_instants(plan: "Backfill", wanted: Sequence[datetime], rate: float | None) -> None:
    from sereno.cli.schedules.text import full_time, row_headline  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.duration import duration_text  # noqa: PLC0415 - see above
    from sereno.schedules.lists import clock_of  # noqa: PLC0415 - see above

    click.echo(row_headline(plan.schedule))
    for at in plan.instants[:LISTED]:
        done = "   done before" if at in plan.done else ""
        click.echo(f"  {full_time(at, clock_of(plan.schedule.rule))}{done}")
    if len(plan.instants) > LISTED:
        click.echo(f"  … and {len(plan.instants) - LISTED:,} more")
    pace = f", {duration_text(len(wanted) / rate)} at {rate:g}/s" if rate and wanted else ""
    found = f"{counted(len(plan.instants), 'instant')}, {len(plan.done):,} of them done before"
    click.echo(f"{found}: {_jobs_to_make(plan, wanted)} to create{pace}." if wanted else f"{found}. Nothing to create.")


def _show_plan(plan: "Backfill", wanted: Sequence[datetime], form: str) -> None:
    from sereno.schedules.lists import clock_of  # noqa: PLC0415 - slow to import; --help needs none

    clock = clock_of(plan.schedule.rule)
    instants = [{"at": at, "local": at.astimezone(clock).isoformat(), "done": at in plan.done} for at in plan.instants]
    found = {"key": plan.schedule.key, "to_make": len(wanted), "instants": instants}
    show_json(found, indent=2 if form == "json" else 0)
