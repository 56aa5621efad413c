"""`sereno schedule run`, `tick` and `backfill`: fires that somebody asks for."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import Rate, desk_options, output_option
from sereno.cli.output import chosen_form, show_json
from sereno.cli.schedule_options import Moments, ask, existing, someone_is_there
from sereno.errors import Refused

if TYPE_CHECKING:
    from sereno.cli.desk import Desk
    from sereno.domain.job import Job
    from sereno.engine.ticker import Ticker
    from sereno.operations.schedules import Backfill

# Instants that are listed before a backfill; the others are counted.
LISTED = 20


@click.command("run", epilog="Example: sereno schedule run reconcile:r42")
@click.argument("key")
@output_option
@desk_options
def run_now(desk: "Desk", key: str, form: str) -> None:
    """Fire it now, and print the job's id. Whatever its rule says, and whether or not a run goes on."""
    from sereno.operations.schedules import run_now as operation  # noqa: PLC0415 - slow to import; --help needs none

    existing(desk, key)
    made = desk.run(operation(key))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(made, indent=2 if form == "json" else 0)
        return
    click.echo(made.id)
    click.echo("Made." if made.created else "There was one with its unique key already: this is it.", err=True)


@dataclass
class Passed:
    """What a pass did."""

    fires: int = 0
    skips: int = 0
    runs_ended: int = 0
    parked: list[dict[str, str]] = field(default_factory=list)


@click.command(epilog="Example: sereno schedule tick -o json")
@output_option
@desk_options
def tick(desk: "Desk", form: str) -> None:
    """Fire what is due, once, and exit. For whatever keeps time instead of a scheduler, such as the system's cron."""
    from sereno.store.ticks import end_all_runs  # noqa: PLC0415 - slow to import; --help needs none

    passed = Passed(runs_ended=desk.run(end_all_runs()))
    _fire_due(desk, passed)
    if chosen_form(form) in ("json", "jsonl"):
        show_json(passed, indent=2 if form == "json" else 0)
        return
    fires = "1 fire" if passed.fires == 1 else f"{passed.fires:,} fires"
    click.echo(f"{fires}, {passed.skips:,} skipped, {len(passed.parked):,} parked.")
    for parked in passed.parked:
        click.echo(f"Parked: {parked['key']}: {parked['why']}", err=True)


def _fire_due(desk: "Desk", passed: Passed) -> None:
    """Until what was due at the beginning is met; a rhythm of milliseconds is always due again."""
    from sereno.engine.ticker import BATCH, Ticker  # noqa: PLC0415 - slow to import; --help needs none

    ticker = Ticker()
    began, single = None, 0
    while True:
        limit = 1 if single else BATCH
        done = _one_pass(desk, ticker, limit, passed)
        if done is None:
            # One of them could not be written: they are met one by one, and that one is parked.
            single = single or len(ticker.taken) or BATCH
            continue
        began, single = began or done.now, max(0, single - 1)
        passed.fires += done.fires
        passed.skips += done.skips
        passed.parked += [{"key": key, "why": why} for key, why in done.parked]
        if done.taken < limit or done.reached >= began:
            return


def _one_pass(desk: "Desk", ticker: "Ticker", limit: int, passed: Passed) -> Any:
    import psycopg  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.errors import InvalidSchedule  # noqa: PLC0415 - see above
    from sereno.store.ticks import first, park  # noqa: PLC0415 - see above

    try:
        return desk.run(ticker.tick(limit=limit))
    except (psycopg.OperationalError, psycopg.ProgrammingError):
        # The server, a table or a right: no fault of any schedule.
        raise
    except (psycopg.Error, InvalidSchedule, ValueError, OverflowError, KeyError, RecursionError) as error:
        if limit == 1:
            # One that could not even be read is known by its place alone.
            refused = ticker.taken or desk.run(first(0))
            if not refused:
                raise
            keys = desk.run(park(refused, f"it could not be fired: {error}"))
            passed.parked += [{"key": key, "why": str(error)} for key in keys]
        return None


@click.command(epilog="Example: sereno schedule backfill reconcile:r42 2026-10-01 2026-11-01 --rate 5/s --dry-run")
@click.argument("key")
@click.argument("start", metavar="FROM")
@click.argument("end", metavar="TO")
@click.option("--rate", type=Rate(), help="So many a second, such as 50/s; without it, all at once.")
@click.option("--dry-run", is_flag=True, help="List the instants, and do nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do it without asking.")
@output_option
@desk_options
def backfill(
    desk: "Desk", key: str, start: str, end: str, rate: float | None, dry_run: bool, yes: bool, form: str
) -> None:
    """Run instants of the past, each at most once. Dates are on the schedule's own clock; "7d" is so long ago."""
    plan = _planned(desk, key, start, end)
    wanted = [at for at in plan.instants if at not in plan.done]
    as_json = chosen_form(form) in ("json", "jsonl")
    if not as_json:
        _list_instants(plan, wanted, rate)
    if dry_run:
        if as_json:
            _show_plan(plan, wanted, form)
        return
    if wanted and not yes:
        _confirm(len(wanted))
    jobs = _make(desk, key, wanted, rate)
    if as_json or wanted:
        _tell_made(jobs, len(wanted) - len(jobs), form)


def _confirm(count: int) -> None:
    if not someone_is_there():
        raise Refused(f"this would make {_jobs(count)}: look with --dry-run, confirm with --yes")
    ask(f"Make {_jobs(count)}?")


def _tell_made(jobs: "Sequence[Job]", left: int, form: str) -> None:
    made = [job.id for job in jobs if job.created]
    there = len(jobs) - len(made)
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"jobs": made, "there_before": there, "left": left}, indent=2 if form == "json" else 0)
        return
    click.echo(f"Made {_jobs(len(made))}.")
    if there:
        click.echo(f"There before, under their unique keys: {_jobs(there)}.", err=True)
    if left:
        click.echo(f"Left as they were: {left:,} instants that were recorded before.", err=True)


def _planned(desk: "Desk", key: str, start: str, end: str) -> "Backfill":
    from sereno.domain.zones import moment  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.operations.schedule_lists import clock_of  # noqa: PLC0415 - see above
    from sereno.operations.schedules import backfill_plan  # noqa: PLC0415 - see above
    from sereno.store.schedules import clock  # noqa: PLC0415 - see above

    row = existing(desk, key)
    now = moment(desk.run(clock()))
    first, last = (
        Moments(name, clock_of(row.rule), now=now, back=True).read(text)
        for name, text in (("FROM", start), ("TO", end))
    )
    if last > now:
        raise Refused(f"a backfill is for the past, and {last.isoformat()} is to come: its schedule will fire it")
    return desk.run(backfill_plan(key, first, last))


def _make(desk: "Desk", key: str, wanted: Sequence[datetime], rate: float | None) -> "list[Job]":
    from sereno.operations.schedules import backfill as operation  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.operations.schedules import batches  # noqa: PLC0415 - see above

    made: list[Job] = []
    with progress(len(wanted), "Making jobs") as bar:
        for first, some in batches(wanted):
            made += desk.run(operation(key, some, first=first, rate=rate))
            bar.update(len(some))
    return made


def progress(length: int, label: str) -> Any:
    """A bar for whoever watches; nothing in a file."""
    return click.progressbar(length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())


def _list_instants(plan: "Backfill", wanted: Sequence[datetime], rate: float | None) -> None:
    from sereno.cli.schedule_words import full_time, row_headline  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.domain.duration import spoken  # noqa: PLC0415 - see above
    from sereno.operations.schedule_lists import clock_of  # noqa: PLC0415 - see above

    click.echo(row_headline(plan.schedule))
    for at in plan.instants[:LISTED]:
        done = "   done before" if at in plan.done else ""
        click.echo(f"  {full_time(at, clock_of(plan.schedule.rule))}{done}")
    if len(plan.instants) > LISTED:
        click.echo(f"  … and {len(plan.instants) - LISTED:,} more")
    pace = f", {spoken(len(wanted) / rate)} at {rate:g}/s" if rate and wanted else ""
    click.echo(
        f"{len(plan.instants):,} instants, {len(plan.done):,} of them done before: {_jobs(len(wanted))} to make{pace}."
    )


def _show_plan(plan: "Backfill", wanted: Sequence[datetime], form: str) -> None:
    from sereno.operations.schedule_lists import clock_of  # noqa: PLC0415 - slow to import; --help needs none

    clock = clock_of(plan.schedule.rule)
    instants = [{"at": at, "local": at.astimezone(clock).isoformat(), "done": at in plan.done} for at in plan.instants]
    found = {"key": plan.schedule.key, "to_make": len(wanted), "instants": instants}
    show_json(found, indent=2 if form == "json" else 0)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
