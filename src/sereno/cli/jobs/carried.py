"""`sereno queue carry` and `sereno queue show`: move a queue to its carrier and back, and see both sides."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import counted, human_seconds, show_record, wrapped
from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from sereno.carriers.operations import ShareChange
    from sereno.cli.context import CommandContext
    from sereno.jobs.queries.carriers import CarrierLine
    from sereno.jobs.queries.queues import QueueLine

ALL = 100
# Characters of the label of a line.
LABEL = 12


class NoCarrier(click.ClickException):
    """The named queue does not exist, or has no carrier."""

    exit_code = 7


class ShareType(click.ParamType):  # type: ignore[type-arg]  # generic only in the newest click
    """A share of jobs: 10%, or 10."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().removesuffix("%").strip()
        if not text.isdecimal() or int(text) > ALL:
            self.fail(f"{value!r:.40}: expected a share such as 10%, from 0% to 100%", param, ctx)
        return int(text)


@click.command(epilog="Example: sereno queue carry clicks --to jetstream --share 10%")
@click.argument("name", metavar="QUEUE")
@click.option(
    "--to", "where", required=True, type=click.Choice(["jetstream", "postgres"]), help="Where new jobs of the queue go."
)
@click.option("--share", type=ShareType(), metavar="N%", help="Share of new jobs for the carrier.  [default: 100%]")
@click.option("--recover", is_flag=True, help="Give up the carrier: jobs on their way to it return to PostgreSQL.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@output_option
@context_options
def carry(
    context: "CommandContext", name: str, where: str, share: int | None, recover: bool, dry_run: bool, form: str
) -> None:
    """Move a share of the new jobs of a queue to its carrier, or back to PostgreSQL.

    Jobs that the carrier has already are run from there.
    """
    from sereno.carriers.operations import set_share  # noqa: PLC0415 - slow to import; --help needs none

    if where == "postgres" and share:
        raise click.UsageError("--share is the part for the carrier: --to jetstream --share 10%, or --to postgres.")
    if recover and where != "postgres":
        raise click.UsageError("--recover gives up the carrier: use it with --to postgres.")
    wanted = 0 if where == "postgres" else ALL if share is None else share
    app = context.app_or_none()
    declared = () if app is None else app.registry.carried
    # Connect first: a missing database is a ConfigurationError too, with its own exit code.
    context.connection()
    try:
        change = context.run(set_share(name, wanted, declared=declared, recover=recover, dry_run=dry_run))
    except ConfigurationError as error:
        raise NoCarrier(str(error)) from None
    show_record(form, change, lambda: _changed(change, dry_run=dry_run, recover=recover))


def _changed(change: "ShareChange", *, dry_run: bool, recover: bool) -> Iterator[str]:
    carrier = change.carrier
    where = f"{carrier.kind} at {carrier.address}" if carrier else "the carrier"
    if not change.is_changed and not recover:
        yield f"{change.queue}: {change.share} % of new jobs go to {where}, as before."
        return
    would = "Would change " if dry_run else ""
    yield f"{would}{change.queue}: {change.before} % → {change.share} % of new jobs go to {where}."
    if dry_run:
        return
    if recover:
        yield f"{counted(change.recovered, 'job')} on the way to the carrier returned to PostgreSQL."
        yield "Jobs that the carrier has stored run when it answers again."
    yield "Workers follow within 5 s, processes that enqueue directly within 10 s."
    if not change.share and not recover:
        yield f"Workers go on until the carrier is empty: sereno queue show {change.queue}"


@click.command(epilog="Example: sereno queue show clicks -o json")
@click.argument("name", metavar="QUEUE")
@output_option
@context_options
def show(context: "CommandContext", name: str, form: str) -> None:
    """Show a queue: its jobs in PostgreSQL, and what is pending at its carrier."""
    from sereno.jobs.queries.queues import list_queues  # noqa: PLC0415 - slow to import; --help needs none

    lines = context.run(list_queues())
    found = next((line for line in lines if line.queue == name), None)
    if found is None:
        from difflib import get_close_matches  # noqa: PLC0415 - only for an error

        near = get_close_matches(name, [line.queue for line in lines], 1)
        hint = f"did you mean {near[0]}?" if near else "see sereno queue list"
        raise NoCarrier(f"the queue {name!r:.80} has no jobs, workers, pause or carrier: {hint}")
    show_record(form, found, lambda: _page(found))


def _page(line: "QueueLine") -> Iterator[str]:
    for label, text in _lines(line):
        first, *rest = wrapped(text, LABEL)
        yield f"{label:<{LABEL}}{first}"
        yield from (" " * LABEL + part for part in rest)


def _lines(line: "QueueLine") -> Iterator[tuple[str, str]]:
    yield "queue", line.queue
    oldest = "" if line.oldest_seconds is None else f"; the oldest is due for {human_seconds(line.oldest_seconds)}"
    jobs = f"{line.ready} ready, {line.running} running, {line.scheduled} scheduled, {line.waiting} waiting{oldest}"
    yield "PostgreSQL", jobs
    yield "workers", f"{line.workers:,} with {counted(line.slots, 'slot')}"
    if line.is_paused:
        note = f": {line.note}" if line.note else ""
        yield "paused", f"by {line.paused_by}{note}"
    if line.carrier is None:
        yield "carrier", "none: all its jobs are in PostgreSQL"
    else:
        yield from _carrier_lines(line.carrier)


def _carrier_lines(line: "CarrierLine") -> Iterator[tuple[str, str]]:
    from sereno.cli.archive.context import size  # noqa: PLC0415 - slow to import; --help needs none

    held = f"{line.pending_messages:,} waiting, {line.held_messages:,} held by workers"
    again = f", {line.redelivered_messages:,} of them delivered again" if line.redelivered_messages else ""
    oldest = "" if line.oldest_seconds is None else f"; the oldest is {human_seconds(line.oldest_seconds)} old"
    about = f"about {counted(line.pending_jobs, 'job')} in {counted(line.messages, 'message')}: {held}{again}{oldest}"
    yield line.kind, about if line.messages else "empty"
    waits = "" if line.relay_oldest_seconds is None else f", for {human_seconds(line.relay_oldest_seconds)}"
    relay = f"{counted(line.relay_jobs, 'job')} in {counted(line.relay_messages, 'message')} to publish{waits}"
    yield "relay", relay if line.relay_messages else "nothing to publish"
    yield "share", f"{line.share} % of new jobs go to {line.kind} at {line.address}{', direct' if line.direct else ''}"
    limit = f" of {size(line.max_bytes)}" if line.max_bytes else ""
    leader = f", leader {line.leader}" if line.leader else ""
    nodes = f"{line.current_replicas} of {counted(line.replicas, 'replica')}{leader}"
    yield "stream", f"{size(line.bytes)}{limit}; {nodes}"
    yield "state", carrier_state(line)
    if line.is_retired:
        yield "next", "the stream is empty, and no new job goes there: you can remove the carrier from the settings"


def carrier_state(line: "CarrierLine") -> str:
    """Return whether the carrier answers, in words."""
    if line.state == "unknown":
        return f"unknown: no worker of the queue has reported for {human_seconds(line.reported_seconds)}"
    if line.state == "up":
        return f"it answers; reported {human_seconds(line.reported_seconds)} ago"
    since = (
        "it never answered" if line.reached_seconds is None else f"no answer for {human_seconds(line.reached_seconds)}"
    )
    return f"away: {since}{f' ({line.error})' if line.error else ''}"
