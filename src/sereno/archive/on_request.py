"""Archive jobs that a person requested: verify files, restore rows, extract rows to a file.

Plain functions: files are fetched and compared in a thread. `archive.client` imports this module when such a job runs.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import psycopg

from sereno.archive import files as archive_files
from sereno.archive import restore
from sereno.archive.jobs import ended, request_of, span_of
from sereno.archive.orders import LONGEST_NAME, ExtractOrder, Order, RestoreOrder, VerifyOrder
from sereno.archive.restore import MOST
from sereno.archive.rows import FileSelection
from sereno.archive.scratch import scratch
from sereno.archive.storage import EXTRACTS, Storage
from sereno.archive.verifier import ArchiveVerifier
from sereno.database.database import Database
from sereno.database.driver import drive
from sereno.database.statement import run
from sereno.errors import ConfigurationError, InvalidArguments, Refused, first_line
from sereno.jobs.attempt import Cancel, Dead
from sereno.worker.context import Context

# Problems that a result lists; the others are counted.
MOST_LISTED = 50
# SQLSTATE classes of transient errors (connection, server, locks), which are retried.
PASSING = ("08", "40", "53", "55", "57")
# Characters that are replaced in the name of an object.
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+")


def carry_out(database: Database, place: Storage, ctx: Context, order: Order) -> None:
    """Do what was ordered, and record the result in the transaction that settles the job."""
    if isinstance(order, VerifyOrder):
        result = _verify(database, ctx, order)
    elif isinstance(order, RestoreOrder):
        result = _restore(database, place, ctx, order)
    else:
        result = _extract(database, place, ctx, order)
    with ctx.transaction() as connection:
        run(connection, ended(order, ctx.job_id, result), database.settings.schema)


def _verify(database: Database, ctx: Context, order: VerifyOrder) -> dict[str, Any]:
    with _permanent_errors():
        verifier = ArchiveVerifier(database, database.settings)
        found = verifier.verify(FileSelection(order.batch, order.since), order.sample, _progress(ctx))
    return asdict(found) | {"problems": found.problems[:MOST_LISTED], "problems_in_all": len(found.problems)}


def _restore(database: Database, place: Storage, ctx: Context, order: RestoreOrder) -> dict[str, Any]:
    progress = _progress(ctx)
    with _permanent_errors():
        if order.dry_run:
            counted = drive(restore.count(request_of(order), place, progress), database.run)
            return {"kind": order.kind, "dry_run": True, "found": counted}
        plan = restore.restore(request_of(order), place, progress, yes=order.yes, actor=order.requested_by)
        done = drive(plan, database.run)
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


def _extract(database: Database, place: Storage, ctx: Context, order: ExtractOrder) -> dict[str, Any]:
    """Store the extract next to the archived files, under a name that no other job uses."""
    name = f"{EXTRACTS}{_STRANGE.sub('_', order.kind)[:LONGEST_NAME]}-{ctx.job_id}.{order.form}"
    with _permanent_errors(), scratch("extract") as directory:
        file = directory / f"extract.{order.form}"
        rows = drive(archive_files.export(order.kind, span_of(order), place, file, _progress(ctx)), database.run)
        if not file.exists():
            return {"kind": order.kind, "rows": 0, "object": None}
        place.put(name, file)
        size = file.stat().st_size
    return {"kind": order.kind, "rows": rows, "object": name, "place": place.address, "bytes": size}


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
