"""`app.archive`: what is old leaves for verified files, and tables of your own with it.

Two cycles do it, in the queue `default`, wherever a place for the files is set or a table is named.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sereno.client.task import Task
from sereno.domain.duration import Duration, seconds
from sereno.domain.retry import Backoff
from sereno.domain.schedule import NewSchedule
from sereno.domain.when import Cron
from sereno.engine.archivist import Archivist, OwnTable
from sereno.engine.context import Context
from sereno.errors import ArchiveUnavailable, ConfigurationError
from sereno.schedules import Schedules
from sereno.settings import A_DAY
from sereno.store.database import Database

MOVE = "sereno.archive_move"
EXPORT = "sereno.archive_export"
QUEUE = "default"
# The usual outage of a store, and then most of a day.
RETRY = Backoff(10, first="1m", cap="2h")
LONGEST_NAME = 200


class Archive:
    """The archive of one application."""

    def __init__(self, database: Database, make_task: Callable[..., Any]) -> None:
        self._database = database
        self._make_task = make_task
        self._tasks: dict[str, Task[..., Any]] = {}
        self._tables: dict[str, OwnTable] = {}

    def table(self, name: str, *, time: str, older_than: Duration) -> None:
        """Rows of a table of yours, once their `time` is older than this: `app.archive.table("public.tenders", …)`.

        The table needs a primary key, and no other may lose rows with it (`on delete cascade`).
        """
        age = seconds(older_than)
        if "." not in name or not time or max(len(name), len(time)) > LONGEST_NAME:
            raise ConfigurationError(
                f"{name!r:.80}: name the table with its schema, such as public.tenders, and its column"
            )
        if age < A_DAY:
            raise ConfigurationError(f"{name}: what is younger than a day is not old")
        if name in self._tables:
            raise ConfigurationError(f"{name} is to be archived twice: say it once")
        self._tables[name] = OwnTable(name, time, age)

    @property
    def is_on(self) -> bool:
        """Whether anything is archived: a place is set, or a table of the user's is named."""
        return self._database.settings.archive_url is not None or bool(self._tables)

    @property
    def tables(self) -> Sequence[OwnTable]:
        return list(self._tables.values())

    def archivist(self) -> Archivist:
        """Who does the work, with the settings as they are now."""
        return Archivist(self._database, self._database.settings, self.tables)

    def schedules(self, board: Schedules) -> list[NewSchedule]:
        """The two cycles, where there is something to do; their tasks are known from then on."""
        self.register()
        settings = self._database.settings
        when = {MOVE: settings.archive_move_cron, EXPORT: settings.archive_export_cron}
        return [board.new(name, task.job(), Cron(when[name]), overlap="skip") for name, task in self._tasks.items()]

    def register(self) -> None:
        """The tasks of both cycles, where there is something to do."""
        if not self.is_on or self._tasks:
            return

        async def move(ctx: Context) -> None:
            found = await self.archivist().move(ctx.progress)
            ctx.log.info(
                "%d days and %d rows left the hot tables", found.days, found.rows, extra={"event": "archive.moved"}
            )
            if found.problems or found.waiting:
                waiting = [f"{day} is being read" for day in found.waiting]
                raise ArchiveUnavailable("; ".join([*found.problems, *waiting]))

        async def export(ctx: Context) -> None:
            found = await self.archivist().export(ctx.progress)
            said = "%d rows in %d files are verified, %d batches were dropped"
            ctx.log.info(said, found.rows, found.files, found.dropped, extra={"event": "archive.exported"})
            if found.problems:
                raise ArchiveUnavailable("; ".join(found.problems))

        for name, function in ((MOVE, move), (EXPORT, export)):
            self._tasks[name] = self._make_task(name=name, queue=QUEUE, retry=RETRY, timeout=None)(function)
