"""`app.archive`: moves old rows, also those of your own tables, into verified files.

Two cycles do it, in the queue `default`, if a storage for the files is set or a table is named. Requests over HTTP
(verify files, restore rows, extract rows to a file) are done there too, as jobs.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import psycopg

from sereno.archive import files as archive_files
from sereno.archive import restore
from sereno.archive.archiver import Archiver, OwnTable
from sereno.archive.jobs import (
    EXPORT,
    EXTRACT,
    MOVE,
    RESTORE,
    VERIFY,
    ExtractOrder,
    Order,
    RestoreOrder,
    VerifyOrder,
    ended,
)
from sereno.archive.restore import MOST
from sereno.archive.rows import FileSelection
from sereno.archive.scratch import scratch
from sereno.archive.storage import EXTRACTS
from sereno.archive.verifier import ArchiveVerifier
from sereno.database.database import Database
from sereno.database.driver import drive
from sereno.database.statement import run
from sereno.duration import Duration, seconds
from sereno.errors import ArchiveUnavailable, ConfigurationError, InvalidArguments, Refused, first_line
from sereno.jobs.attempt import Cancel, Dead
from sereno.jobs.retry import Backoff
from sereno.jobs.task_handle import Task
from sereno.schedules.client import Schedules
from sereno.schedules.rules.when import Cron
from sereno.schedules.schedule import NewSchedule
from sereno.settings import A_DAY
from sereno.worker.context import Context

QUEUE = "default"
# Covers the usual outage of a storage, and then most of a day.
RETRY = Backoff(10, first="1m", cap="2h")
LONGEST_NAME = 200
# For jobs that a person waits for: after about an hour the job is dead, and can be retried.
ON_REQUEST_RETRY = Backoff(5, first="30s", cap="15m")
# Problems that a result lists; the others are counted.
MOST_LISTED = 50
# SQLSTATE classes of transient errors (connection, server, locks), which are retried.
PASSING = ("08", "40", "53", "55", "57")
# Characters that are replaced in the name of an object.
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+")


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

    def archiver(self) -> Archiver:
        """Return an archiver with the current settings."""
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

        async def move(ctx: Context) -> None:
            found = await self.archiver().move(ctx.progress)
            ctx.log.info(
                "%d days and %d rows left the hot tables", found.days, found.rows, extra={"event": "archive.moved"}
            )
            if found.problems or found.waiting:
                waiting = [f"{day} is being read" for day in found.waiting]
                raise ArchiveUnavailable("; ".join([*found.problems, *waiting]))

        async def export(ctx: Context) -> None:
            found = await self.archiver().export(ctx.progress)
            text = "%d rows in %d files are verified, %d batches were dropped"
            ctx.log.info(text, found.rows, found.files, found.dropped, extra={"event": "archive.exported"})
            if found.problems:
                raise ArchiveUnavailable("; ".join(found.problems))

        for name, function in ((MOVE, move), (EXPORT, export)):
            self._tasks[name] = self._make_task(name=name, queue=QUEUE, retry=RETRY, timeout=None)(function)

    # Requested by people. Plain functions: files are fetched and compared in a thread.

    def _register_on_request(self) -> None:
        # Nested, so that a job whose process died is not isolated in a process of its own: it did not cause it.
        def verify(ctx: Context, order: VerifyOrder) -> None:
            self._end(ctx, order, self._verify(ctx, order))

        def restore(ctx: Context, order: RestoreOrder) -> None:
            self._end(ctx, order, self._restore(ctx, order))

        def extract(ctx: Context, order: ExtractOrder) -> None:
            self._end(ctx, order, self._extract(ctx, order))

        functions: dict[str, Callable[..., None]] = {VERIFY: verify, RESTORE: restore, EXTRACT: extract}
        for name, function in functions.items():
            self._on_request[name] = self._make_task(name=name, queue=QUEUE, retry=ON_REQUEST_RETRY, timeout=None)(
                function
            )

    def _verify(self, ctx: Context, order: VerifyOrder) -> dict[str, Any]:
        with _permanent_errors():
            verifier = ArchiveVerifier(self._database, self._database.settings)
            found = verifier.verify(FileSelection(order.batch, order.since), order.sample, _progress(ctx))
        return asdict(found) | {"problems": found.problems[:MOST_LISTED], "problems_in_all": len(found.problems)}

    def _restore(self, ctx: Context, order: RestoreOrder) -> dict[str, Any]:
        place, progress = self.archiver().place, _progress(ctx)
        with _permanent_errors():
            if order.dry_run:
                counted = drive(restore.count(order.request, place, progress), self._database.run)
                return {"kind": order.kind, "dry_run": True, "found": counted}
            plan = restore.restore(order.request, place, progress, yes=order.yes, actor=order.requested_by)
            done = drive(plan, self._database.run)
        rows, children = done.rows, done.children
        return {
            "kind": done.kind,
            "dry_run": False,
            "found": rows.found,
            "restored": rows.restored,
            "present": rows.present,
            "children_kind": done.children_kind,
            "children_restored": children.restored,
            "refused": rows.refused + children.refused,
        }

    def _extract(self, ctx: Context, order: ExtractOrder) -> dict[str, Any]:
        """Store the extract next to the archived files, under a name that no other job uses."""
        place = self.archiver().place
        name = f"{EXTRACTS}{_STRANGE.sub('_', order.kind)[:LONGEST_NAME]}-{ctx.job_id}.{order.form}"
        with _permanent_errors(), scratch("extract") as directory:
            file = directory / f"extract.{order.form}"
            rows = drive(archive_files.export(order.kind, order.span, place, file, _progress(ctx)), self._database.run)
            if not file.exists():
                return {"kind": order.kind, "rows": 0, "object": None}
            place.put(name, file)
            size = file.stat().st_size
        return {"kind": order.kind, "rows": rows, "object": name, "place": place.address, "bytes": size}

    def _end(self, ctx: Context, order: Order, result: dict[str, Any]) -> None:
        """Record the result in the transaction that settles the job."""
        with ctx.transaction() as connection:
            run(connection, ended(order, ctx.job_id, result), self._database.settings.schema)


def _progress(ctx: Context) -> Callable[[float, str], None]:
    """Return a callback that reports the progress and checks for cancellation between two files."""

    def progress(share: float, text: str) -> None:
        if ctx.cancel_requested:
            raise Cancel("cancelled on request; what was already done stays")
        ctx.progress(share, text)

    return progress


@contextmanager
def _permanent_errors() -> Iterator[None]:
    """Turn errors that a retry would repeat into Dead."""
    try:
        yield
    except Refused:
        raise Dead(f"more than {MOST:,} rows would be restored: count them with dry_run, confirm with all") from None
    except (InvalidArguments, ConfigurationError) as error:
        raise Dead(str(error)) from None
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate.startswith(PASSING):
            raise
        hint = f" {error.diag.message_hint}" if error.diag.message_hint else ""
        raise Dead(f"it cannot continue: {first_line(error)}.{hint}") from None
