"""`sereno status`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import chosen_form, counted, short_time, show_json, table, terminal, visible

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.monitoring.status import SchedulerLine, SystemStatus

# Seconds. A transaction that is open for longer is shown.
LONG_TRANSACTION = 60.0
# Seconds. A scheduler that is this late is reported as late.
BEHIND = 1.0


@click.command(epilog="Example: sereno status -o json")
@output_option
@context_options
def status(context: "CommandContext", form: str) -> None:
    """Show workers, the scheduler, queues, dead jobs and pauses."""
    from sereno.cli.jobs.queues import queue_columns  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.monitoring.status import status as operation  # noqa: PLC0415 - see above

    found = context.run(operation())
    if chosen_form(form) in ("json", "jsonl"):
        show_json(found, indent=2 if form == "json" else 0)
        return
    for line in sentences(found):
        click.echo(visible(line))
    if not found.queues:
        return
    click.echo()
    if chosen_form(form) == "table":
        terminal().print(table(found.queues, queue_columns(found.queues)))
        return
    for queue in found.queues:
        live = f"{queue.ready} ready, {queue.running} running, {queue.scheduled} scheduled, {queue.waiting} waiting"
        carried = f", about {queue.carrier.pending_jobs} at its carrier" if queue.carrier else ""
        click.echo(f"{visible(queue.queue)}: {live}{carried}")


def sentences(found: "SystemStatus") -> Iterator[str]:
    """Return the status as a few lines of text."""
    from sereno.duration import duration_text  # noqa: PLC0415 - slow to import; --help needs none

    workers = "1 worker is" if found.workers_alive == 1 else f"{found.workers_alive} workers are"
    yield f"{workers} alive with {counted(found.slots, 'slot')}; schema {found.schema_version}."
    yield from scheduler_sentences(found.scheduler)
    if found.dead_letters.value:
        yield f"{counted(found.dead_letters, 'dead job')}: sereno job list --state dead"
    if found.next_scheduled is not None:
        job = found.next_scheduled
        when = f"in {duration_text(job.in_seconds)}" if job.in_seconds > 0 else "now"
        yield f"Next due: job {job.id} ({job.task}), {when}."
    for pause in found.pauses:
        note = f": {pause.note}" if pause.note else ""
        yield f"Paused: {pause.kind} {pause.name}, by {pause.paused_by}{note}"
    for queue in found.queues:
        if queue.carrier is not None and queue.carrier.state != "up":
            yield f"The carrier of the queue {queue.queue} is {queue.carrier.state}: sereno queue show {queue.queue}"
    oldest = found.oldest_transaction
    if oldest is not None and oldest.seconds > LONG_TRANSACTION:
        age = duration_text(oldest.seconds)
        yield f"A transaction has been open for {age} (pid {oldest.pid}, {oldest.application!r})."


def scheduler_sentences(found: "SchedulerLine") -> Iterator[str]:
    """Return lines about the scheduler that leads, its last tick, and the schedules by state."""
    from sereno.duration import duration_text  # noqa: PLC0415 - slow to import; --help needs none

    if found.since is None or found.until is None:
        yield "Scheduler: none has run yet."
    elif found.alive:
        since, end = short_time(found.since), short_time(found.until)
        yield f"Scheduler: {found.holder} leads since {since}, its lease runs until {end}."
    else:
        yield f"Scheduler: none is alive. The last one, {found.holder}, lost its lease at {short_time(found.until)}."
    if found.ticked_seconds_ago is not None and found.tick_seconds is not None:
        fires = counted(found.tick_fires or 0, "fire")
        ago, took = duration_text(found.ticked_seconds_ago), duration_text(found.tick_seconds)
        yield f"  Last tick {ago} ago: {fires} in {took}."
    if found.error and found.error_at is not None:
        yield f"  Last error at {short_time(found.error_at)}: {found.error.splitlines()[0]}"
    counts = ", ".join(f"{count:,} {state}" for state, count in found.schedules.items())
    yield f"  Schedules: {counts or 'none'}{_lag(found)}."
    if not found.alive and found.schedules.get("enabled"):
        yield "  No scheduler is alive: start `sereno scheduler`, or a worker without SERENO_SCHEDULER=false."


def _lag(found: "SchedulerLine") -> str:
    from sereno.duration import duration_text  # noqa: PLC0415 - slow to import; --help needs none

    if found.lag_seconds is None or found.lag_seconds < BEHIND:
        return "; none is late" if found.schedules.get("enabled") else ""
    return f"; the oldest due one is {duration_text(found.lag_seconds)} late"
