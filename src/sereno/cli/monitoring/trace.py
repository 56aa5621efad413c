"""`sereno trace ID`: the timeline of a trace."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from sereno.cli.notifications.page import NotFound, shown
from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, show_list, show_record
from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from sereno.cli.context import CommandContext
    from sereno.monitoring.traces.operations import Trace, TraceLine
    from sereno.monitoring.traces.trace import TraceLane, TraceSegment

# Characters of a line for the timeline, and for the name before it.
WIDTH = 60
NAME_WIDTH = 34
# Characters for a wait, a run and a mark; later spans are drawn over earlier ones.
SIGNS = {"wait": "·", "run": "━", "mark": "◆"}
BREAK = "┊"
# Predecessors of a job that are named.
MOST_AFTER = 5


@click.command(epilog='Example: sereno trace 4bf92f3577b34da6, or sereno trace --subject "tender 1057-22"')
@click.argument("trace_id", required=False, metavar="[ID]")
@click.option("--subject", help="Find traces by the subject of an event.")
@click.option("--job", type=click.IntRange(0, 2**63 - 1), help="Find the trace of this job.")
@click.option("--delivery", type=click.IntRange(0, 2**63 - 1), help="Find the trace of this delivery.")
@click.option("--tenant", help="Show only the part of this tenant.")
@output_option
@context_options
def trace(
    context: "CommandContext",
    trace_id: str | None,
    subject: str | None,
    job: int | None,
    delivery: int | None,
    tenant: str | None,
    form: str,
) -> None:
    """Show the timeline of a trace: its schedules, jobs, events and deliveries.

    Name the trace by its ID, or find it by a subject, job or delivery. A job or an event without a trace id is its own
    trace: job:7, event:7.
    """
    from sereno.monitoring.traces import operations as operation  # noqa: PLC0415 - slow to import; --help needs none

    if (trace_id is None) == (subject is None and job is None and delivery is None):
        raise click.UsageError("pass the ID of a trace, or one of --subject, --job and --delivery")
    if trace_id is None:
        found = context.run(operation.find(subject=subject, job=job, delivery=delivery, tenant=tenant))
        if len(found) != 1:
            _choose(form, found)
            return
        trace_id = found[0].id
    try:
        timeline = context.run(operation.trace(trace_id, tenant=tenant))
    except ConfigurationError as error:
        raise NotFound(f"{error}: find one with --subject, --job or --delivery") from None
    show_record(form, timeline, lambda: _lines(timeline))


def _choose(form: str, found: "Sequence[TraceLine]") -> None:
    columns = [
        Column("trace", lambda line: line.id, "name"),
        Column("kind", lambda line: line.kind),
        Column("name", lambda line: line.name, "name"),
        Column("subject", lambda line: line.subject, "name"),
        Column("tenant", lambda line: line.tenant, "name"),
        Column("at", lambda line: line.at),
    ]
    show_list(form, found, columns, empty="No trace found.")


def _lines(timeline: "Trace") -> Iterator[str]:
    length = (timeline.end - timeline.start).total_seconds()
    yield f"trace {shown(timeline.id)}: {length:,.3f} s from {timeline.start.astimezone():%Y-%m-%d %H:%M:%S}"
    if any(segment.kind == "break" for segment in timeline.segments):
        yield f"Long idle gaps are cut ({BREAK})."
    yield ""
    for lane in timeline.lanes:
        name = shown(f"{lane.kind} {lane.name}")[:NAME_WIDTH]
        yield f"{name:<{NAME_WIDTH}} {picture(lane, timeline.segments)} {_after(timeline.start, lane)}"
    if not timeline.whole:
        yield ""
        yield "The trace has more entries than are shown here."


def picture(lane: "TraceLane", segments: "Sequence[TraceSegment]") -> str:
    """Return the timeline of a lane, WIDTH characters wide."""
    from sereno.monitoring.traces.trace import place  # noqa: PLC0415 - see above

    signs = [" "] * WIDTH

    def column(moment: "datetime") -> int:
        return min(WIDTH - 1, int(place(segments, moment) * WIDTH))

    for segment in segments:
        if segment.kind == "break":
            signs[min(WIDTH - 1, int((segment.low + segment.high) / 2 * WIDTH))] = BREAK
    for span in lane.spans:
        for at in range(column(span.start), column(span.end) + 1):
            signs[at] = SIGNS[span.kind] if signs[at] != BREAK else BREAK
    return "".join(signs)


def _after(start: "datetime", lane: "TraceLane") -> str:
    """Return the start of a lane as an offset, and its state."""
    seconds = (lane.spans[0].start - start).total_seconds()
    if lane.counts:
        least = "" if lane.exact else " or more"
        words = ", ".join(f"{count:,}{least} {state}" for state, count in lane.counts.items())
    else:
        last = lane.spans[-1]
        words = f"{last.state}: {last.words}" if last.words else last.state
    after = f", after {', '.join(lane.after[:MOST_AFTER])}" if lane.after else ""
    more = ", …" if len(lane.after) > MOST_AFTER else ""
    return f"+{seconds:,.3f} s  {shown(words)}{after}{more}"
