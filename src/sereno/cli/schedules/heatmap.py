"""`sereno schedule heatmap`: upcoming fires, one line per hour."""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, chosen_form, counted, show_json, show_list
from sereno.cli.schedules.options import how_many, which_options
from sereno.duration import duration_text, seconds
from sereno.errors import ConfigurationError, InvalidArguments

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.jobs.filters import ScheduleFilter
    from sereno.schedules.heatmap import Heatmap, HeatmapCell

SHADES = "░▒▓█"
NOTHING, OUTSIDE = "·", " "
CELLS_OF_AN_HOUR = 12
# Seconds: the range of --next. More than 31 days, at a line per hour, would be unreadable.
SHORTEST, LONGEST = 300.0, 31 * 86400.0

COLUMNS = (Column("at", lambda cell: cell.at), Column("fires", lambda cell: cell.fires))


@click.command(epilog='Example: sereno schedule heatmap --next 24h "reconcile:*"')
@which_options()
@click.option("--next", "span", default="24h", show_default=True, metavar="DURATION")
@click.option("--tz", metavar="ZONE", help="Time zone of the hours.  [default: local]")
@output_option
@context_options
def heatmap(context: "CommandContext", wanted: "ScheduleFilter", span: str, tz: str | None, form: str) -> None:
    """Draw the number of upcoming fires: a cell for five minutes, a line for an hour."""
    from sereno.schedules.heatmap import heatmap as operation  # noqa: PLC0415 - see above
    from sereno.zones import zone  # noqa: PLC0415 - slow to import; --help needs none

    clock = zone(tz).info if tz else None
    found = context.run(operation(wanted, _span(span)))
    match chosen_form(form):
        case "json":
            show_json(found)
        case "tsv" | "jsonl":
            show_list(form, found.cells, COLUMNS, empty="")
        case "table":
            for line in drawn(found, clock):
                click.echo(line)


def _span(text: str) -> float:
    try:
        length = seconds(text)
    except ConfigurationError as error:
        raise InvalidArguments(f"--next: {error}") from None
    if not SHORTEST <= length <= LONGEST:
        raise InvalidArguments(f"--next {text!r:.40} is out of range: 5 minutes to 31 days")
    return length


def drawn(found: "Heatmap", clock: tzinfo | None) -> Iterator[str]:
    """Return the lines of the heatmap."""
    busiest = max(found.cells, key=lambda cell: cell.fires)
    total = sum(cell.fires for cell in found.cells)
    if not total:
        yield f"No fire within {duration_text((found.until - found.now).total_seconds())}."
        return
    for hour in _hours(found.cells, clock):
        yield _line(hour, busiest.fires, clock)
    yield ""
    yield (
        f"{counted(_number(total), 'fire')} of {how_many(found.schedules)}; the busiest 5 minutes: "
        f"{_number(busiest.fires)} at {busiest.at.astimezone(clock):%a %H:%M %Z}."
    )
    yield "  ".join(f"{shade} up to {_number(most)}" for shade, most in _legend(found.cells, busiest.fires))
    if found.left_out:
        yield f"Omitted, because they are too many or fire too often: {how_many(found.left_out)}."


def _legend(cells: "Sequence[HeatmapCell]", busiest: float) -> "Iterator[tuple[str, float]]":
    """Return the upper bound of each shade; whole numbers, without unused shades, if every cell is a whole number."""
    whole = all(cell.fires == round(cell.fires) for cell in cells)
    before = 0.0
    for number, shade in enumerate(SHADES, 1):
        most = busiest * number / len(SHADES)
        most = float(int(most)) if whole else most
        if most > before:
            yield shade, most
        before = most


def _hours(cells: "Sequence[HeatmapCell]", clock: tzinfo | None) -> "Iterator[list[HeatmapCell]]":
    hour: list[HeatmapCell] = []
    for cell in cells:
        if hour and cell.at.astimezone(clock).minute < hour[-1].at.astimezone(clock).minute:
            yield hour
            hour = []
        hour.append(cell)
    if hour:
        yield hour


def _line(hour: "Sequence[HeatmapCell]", busiest: float, clock: tzinfo | None) -> str:
    first = hour[0].at.astimezone(clock)
    before = first.minute * CELLS_OF_AN_HOUR // 60
    shades = OUTSIDE * before + "".join(_shade(cell.fires, busiest) for cell in hour)
    picture = "".join(shade * 2 for shade in shades.ljust(CELLS_OF_AN_HOUR, OUTSIDE))
    label = f"{first.replace(minute=0):%a %H:%M %Z}"
    peak = max(hour, key=lambda cell: cell.fires)
    if not peak.fires:
        return f"{label}  {picture}"
    return f"{label}  {picture}  {_number(sum(cell.fires for cell in hour)):>9}  {_peak(peak, clock)}"


def _peak(peak: "HeatmapCell", clock: tzinfo | None) -> str:
    at: datetime = peak.at.astimezone(clock)
    return f"peak {_number(peak.fires)} at {at:%H:%M}"


def _shade(fires: float, busiest: float) -> str:
    if fires <= 0:
        return NOTHING
    return SHADES[min(len(SHADES) - 1, int(fires / busiest * len(SHADES) - 1e-9))]


def _number(fires: float) -> str:
    """Return a number of fires, with one decimal below ten."""
    if fires >= 10 or fires == round(fires):  # noqa: PLR2004 - see above
        return f"{fires:,.0f}"
    return f"{fires:.1f}" if fires >= 0.1 else "<0.1"  # noqa: PLR2004 - see above
