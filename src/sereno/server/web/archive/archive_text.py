"""Texts of the archive page: the headline, and the tooltip of each day."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import partial

from markupsafe import Markup

from sereno.archive.operations import ArchiveStatus
from sereno.archive.queries import DayLine
from sereno.duration import duration_text
from sereno.monitoring.alerts.condition_queries import ARCHIVE_BEHIND
from sereno.monitoring.storage import StoredDay, StoredDays
from sereno.server.web.charts import day_squares
from sereno.server.web.charts.day_squares import DaySquare
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.sizes import size
from sereno.server.web.times import clock

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class ArchiveText:
    """For one viewer. `behind`: seconds by which the archive is behind."""

    def __init__(self, page: PageRequest, *, is_on: bool, behind: float) -> None:
        self.is_on = is_on
        self.behind = behind
        self._page = page
        self.say = page.say
        # An archive that runs at night is not late in the morning.
        self._timeout = timedelta(seconds=ARCHIVE_BEHIND if is_on else 0)

    def sentence(self, found: StoredDays | None, status: ArchiveStatus | None) -> str:
        """Return the headline: what matters most."""
        if found is None or status is None:
            return self.say("The database does not respond in time.")
        if status.totals.failures:
            return self._failed(status)
        if self.is_on and self.behind > ARCHIVE_BEHIND:
            age = duration_text(self.behind)
            return self.say("The archive is %(age)s behind: old rows are not in verified files yet.", age=age)
        if self.is_on:
            return self._archived(status)
        return self._stored(found)

    def _failed(self, status: ArchiveStatus) -> str:
        lost = sum(not each.held for each in status.failures)
        if lost:
            if lost == 1:
                return self.say("One file is corrupt or missing, and its rows are stored nowhere else.")
            return self.say(
                "%(count)s files are corrupt or missing, and their rows are stored nowhere else.", count=figure(lost)
            )
        if status.totals.failures == 1:
            return self.say("One file could not be verified: its rows are retained.")
        count = figure(status.totals.failures)
        return self.say("%(count)s files could not be verified: their rows are retained.", count=count)

    def _archived(self, status: ArchiveStatus) -> str:
        totals = status.totals
        if totals.waiting_batches == 1:
            return self.say("One batch waits for its files; all others are verified.")
        if totals.waiting_batches:
            count = figure(totals.waiting_batches)
            return self.say("%(count)s batches wait for their files; all others are verified.", count=count)
        days = figure(self._page.context.settings.keep_history_days)
        if totals.next_drop_at is not None:
            day = clock(totals.next_drop_at, self._page.zone, "%Y-%m-%d")
            return self.say(
                "Everything older than %(days)s days is archived and verified; "
                "the next batch may be dropped on %(day)s.",
                days=days,
                day=day,
            )
        if totals.verified_files:
            return self.say("Everything older than %(days)s days is archived and verified.", days=days)
        return self.say("The archive is on. No rows are old enough yet.")

    def _stored(self, found: StoredDays) -> str:
        if not found.days or not found.rows:
            return self.say("No finished job is stored yet.")
        overdue = sum(each.is_overdue for each in found.days)
        if overdue == 1:
            return self.say("One day is past its retention.")
        if overdue:
            return self.say("%(count)s days are past their retention.", count=overdue)
        rows = figure(found.rows)
        if len(found.days) == 1:
            return self.say("One day is stored: about %(rows)s jobs.", rows=rows)
        return self.say("%(days)s days are stored: about %(rows)s jobs.", days=len(found.days), rows=rows)

    def is_late(self, each: StoredDay, today: date) -> bool:
        return each.is_overdue and each.leaves + self._timeout <= today

    def picture(self, found: StoredDays | None, filed: tuple[date, Sequence[DayLine]] | None, weeks: int) -> Markup:
        """Return the chart with a square for each day: days in tables as such, others by the state of their files."""
        if filed is None:
            return Markup("")
        today, lines = filed
        days: dict[date, DaySquare] = {line.day: self._filed(line) for line in lines}
        for each in found.days if found else ():
            shown = days.get(each.day)
            words = self._of_stored(each, today)
            if shown is None:
                days[each.day] = DaySquare(each.rows, self.is_late(each, today), words)
            else:
                days[each.day] = shown._replace(amount=each.rows, words=f"{words}; {shown.words}")
        return self._squares(days, today, weeks)

    def _squares(self, days: Mapping[date, DaySquare], today: date, weeks: int) -> Markup:
        label = self.say("State of each day of the last %(weeks)s weeks", weeks=weeks)
        return day_squares.squares(
            days, today, weeks, label, self.say("nothing is stored"), partial(_named, self._page)
        )

    def _filed(self, line: DayLine) -> DaySquare:
        values = {"rows": figure(line.rows), "size": size(line.bytes), "files": figure(line.files)}
        if line.state == "failed":
            return DaySquare(0, False, self.say("a file of this day could not be verified"), "failed")
        if line.state == "waiting":
            return DaySquare(
                0, False, self.say("%(files)s files wait to be verified", files=values["files"]), "waiting"
            )
        return DaySquare(
            0, False, self.say("archived: %(rows)s rows, %(size)s, files: %(files)s", **values), "archived"
        )

    def _of_stored(self, each: StoredDay, today: date) -> str:
        rows, amount, leaves = figure(each.rows), size(each.bytes), each.leaves.isoformat()
        if self.is_late(each, today):
            return self.say("about %(rows)s jobs, %(size)s, past retention", rows=rows, size=amount)
        return self.say("about %(rows)s jobs, %(size)s, retained until %(day)s", rows=rows, size=amount, day=leaves)


def _named(page: PageRequest, day: date, form: str) -> str:
    return page.say(MONTHS[day.month - 1] if form == "%b" else WEEKDAYS[day.weekday()])
