"""`app.archive`: moves old rows, also those of your own tables, into verified files.

Two cycles do it, in the queue `default`, if a storage for the files is set or a table is named. Requests over HTTP
(verify files, restore rows, extract rows to a file) are done there too, as jobs.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from sereno.archive.orders import (
    EXPORT,
    EXTRACT,
    LONGEST_NAME,
    MOVE,
    RESTORE,
    VERIFY,
    ExtractOrder,
    Order,
    OwnTable,
    RestoreOrder,
    VerifyOrder,
)
from sereno.database.database import Database
from sereno.duration import Duration, seconds
from sereno.errors import ArchiveUnavailable, ConfigurationError
from sereno.jobs.retry import Backoff
from sereno.jobs.task_handle import Task
from sereno.schedules.client import Schedules
from sereno.schedules.rules.when import Cron
from sereno.schedules.schedule import NewSchedule
from sereno.settings import A_DAY
from sereno.worker.context import Context

if TYPE_CHECKING:
    from sereno.archive.archiver import Archiver

QUEUE = "default"
# Covers the usual outage of a storage, and then most of a day.
RETRY = Backoff(10, first="1m", cap="2h")
# For jobs that a person waits for: after about an hour the job is dead, and can be retried.
ON_REQUEST_RETRY = Backoff(5, first="30s", cap="15m")


class MoveCounts(TypedDict):
    """What left the hot tables: whole days, and rows."""

    days: int
    rows: int


class ExportCounts(TypedDict):
    """What was written and verified, and the batches that were dropped after their grace period."""

    files: int
    rows: int
    bytes: int
    dropped: int


class Archive:
    """The archive of one application."""

    def __init__(self, database: Database, make_task: Callable[..., Any]) -> None:
        self._database = database
        self._make_task = make_task
        self._tasks: dict[str, Task[..., Any]] = {}
        self._on_request: dict[str, Task[..., Any]] = {}
        self._tables: dict[str, OwnTable] = {}

    def table(self, name: str, *, time: str, older_than: Duration) -> None:
        """Archive rows of your own table when their `time` is older: `app.archive.table("public.tenders", …)`.

        The table needs a primary key, and no other table may lose rows with it (`on delete cascade`).
        """
        age = seconds(older_than)
        if "." not in name or not time or max(len(name), len(time)) > LONGEST_NAME:
            raise ConfigurationError(
                f"{name!r:.80}: give the table with its schema, such as public.tenders, and its time column"
            )
        if age < A_DAY:
            raise ConfigurationError(f"{name}: older_than must be at least a day")
        if name in self._tables:
            raise ConfigurationError(f"{name} is declared twice: call app.archive.table once for it")
        self._tables[name] = OwnTable(name, time, age)

    @property
    def is_on(self) -> bool:
        """Return whether anything is archived: a storage is set, or a table of the user's is named."""
        return self._database.settings.archive_url is not None or bool(self._tables)

    @property
    def tables(self) -> Sequence[OwnTable]:
        return list(self._tables.values())

    def archiver(self) -> "Archiver":
        """Return an archiver with the current settings."""
        from sereno.archive.archiver import Archiver  # noqa: PLC0415 - slow to import, and most processes archive nothing

        return Archiver(self._database, self._database.settings, self.tables)

    def schedules(self, schedules: Schedules) -> list[NewSchedule]:
        """Return the schedules of the two cycles, if there is anything to archive; registers their tasks."""
        self.register()
        settings = self._database.settings
        when = {MOVE: settings.archive_move_cron, EXPORT: settings.archive_export_cron}
        return [schedules.new(name, task.job(), Cron(when[name]), overlap="skip") for name, task in self._tasks.items()]

    def register(self) -> None:
        """Register the tasks of both cycles, if there is anything to archive; and those for requests, always.

        Archived rows can be read and restored even where nothing is archived any more.
        """
        if not self._on_request:
            self._register_on_request()
        if not self.is_on or self._tasks:
            return

        async def move(ctx: Context) -> MoveCounts:
            found = await self.archiver().move(ctx.progress)
            ctx.log.info(
                "%d days and %d rows left the hot tables", found.days, found.rows, extra={"event": "archive.moved"}
            )
            if found.problems or found.waiting:
                waiting = [f"{day} is being read" for day in found.waiting]
                raise ArchiveUnavailable("; ".join([*found.problems, *waiting]))
            return {"days": found.days, "rows": found.rows}

        async def export(ctx: Context) -> ExportCounts:
            found = await self.archiver().export(ctx.progress)
            text = "%d rows in %d files are verified, %d batches were dropped"
            ctx.log.info(text, found.rows, found.files, found.dropped, extra={"event": "archive.exported"})
            if found.problems:
                raise ArchiveUnavailable("; ".join(found.problems))
            return {"files": found.files, "rows": found.rows, "bytes": found.bytes, "dropped": found.dropped}

        for name, function in ((MOVE, move), (EXPORT, export)):
            self._tasks[name] = self._make_task(name=name, queue=QUEUE, retry=RETRY, timeout=None)(function)

    # Requested by people. Plain functions: files are fetched and compared in a thread.

    def _register_on_request(self) -> None:
        # Nested, so that a job whose process died is not isolated in a process of its own: it did not cause it.
        def verify(ctx: Context, order: VerifyOrder) -> None:
            self._carry_out(ctx, order)

        def restore(ctx: Context, order: RestoreOrder) -> None:
            self._carry_out(ctx, order)

        def extract(ctx: Context, order: ExtractOrder) -> None:
            self._carry_out(ctx, order)

        functions: dict[str, Callable[..., None]] = {VERIFY: verify, RESTORE: restore, EXTRACT: extract}
        for name, function in functions.items():
            self._on_request[name] = self._make_task(name=name, queue=QUEUE, retry=ON_REQUEST_RETRY, timeout=None)(
                function
            )

    def _carry_out(self, ctx: Context, order: Order) -> None:
        from sereno.archive.on_request import carry_out  # noqa: PLC0415 - as above

        carry_out(self._database, self.archiver().place, ctx, order)
