"""The days of the history: what is kept, until when, and what leaves next."""

from datetime import date
from functools import partial

from markupsafe import Markup
from starlette.responses import Response

from sereno.operations.upkeep import Kept, KeptDay, kept
from sereno.web import day_squares
from sereno.web.copies import copies
from sereno.web.day_squares import Day
from sereno.web.look import Look
from sereno.web.pages import Pages
from sereno.web.sizes import size
from sereno.web.times import figure

WEEKS = 26
# Sizes change slowly.
FRESH = 30.0
# Days in the table: those that leave next.
NEXT = 7
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def rooms(pages: Pages) -> None:
    """`/archive`."""

    @pages.at("/archive")
    async def archive(look: Look) -> Response:
        settings = look.house.settings
        seen = await look.see("kept", partial(kept, settings.keep_history_days), fresh=FRESH)
        return look.page(
            "archive.html",
            seen=seen,
            sentence=_sentence(look, seen.value),
            picture=_picture(look, seen.value),
            next=seen.value.days[:NEXT] if seen.value else [],
            before=len(_before(seen.value)),
            settings=settings,
            size=size,
            weeks=WEEKS,
            copies=copies(look, cli=["config"], path="settings"),
        )


def _sentence(look: Look, found: Kept | None) -> str:
    if found is None:
        return look.say("The database does not answer in time.")
    if not found.days or not found.rows:
        return look.say("No finished job is kept yet.")
    overdue = sum(each.is_overdue for each in found.days)
    if overdue:
        if overdue == 1:
            return look.say("One day should have left, and is still here.")
        return look.say("%(count)s days should have left, and are still here.", count=overdue)
    rows = figure(found.rows)
    if len(found.days) == 1:
        return look.say("One day is kept: about %(rows)s jobs.", rows=rows)
    return look.say("%(days)s days are kept: about %(rows)s jobs.", days=len(found.days), rows=rows)


def _picture(look: Look, found: Kept | None) -> Markup:
    if found is None:
        return Markup("")
    days = {each.day: Day(each.rows, each.is_overdue, _words(look, each)) for each in found.days}
    label = look.say("How many finished jobs each day of the last %(weeks)s weeks keeps", weeks=WEEKS)
    return day_squares.squares(days, found.today, WEEKS, label, look.say("nothing is kept"), partial(_named, look))


def _words(look: Look, each: KeptDay) -> str:
    rows, amount, leaves = figure(each.rows), size(each.bytes), each.leaves.isoformat()
    if each.is_overdue:
        return look.say("about %(rows)s jobs, %(size)s, should have left", rows=rows, size=amount)
    return look.say("about %(rows)s jobs, %(size)s, kept until %(day)s", rows=rows, size=amount, day=leaves)


def _named(look: Look, day: date, form: str) -> str:
    return look.say(MONTHS[day.month - 1] if form == "%b" else WEEKDAYS[day.weekday()])


def _before(found: Kept | None) -> list[KeptDay]:
    """What is older than the picture."""
    if found is None:
        return []
    start = day_squares.first_day(found.today, WEEKS)
    return [each for each in found.days if each.day < start]
