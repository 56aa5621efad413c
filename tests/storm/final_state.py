"""Reads the database after the storm: hot tables, tables that wait to be archived, and the files of the archive."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq

from sereno.database.statement import run
from sereno.monitoring.verify import verify
from tests.facts import one
from tests.faults.rhythms import Rhythm
from tests.storm.evidence import Delivery, EndedJob, FinalState, Fire, PlannedInstants
from tests.storm.producers import RECIPIENTS

# Seconds for one query of `sereno verify` over all rows.
TIMEOUT = 600.0
LEASE = 3.0


def read(connection: psycopg.Connection, archive: Path, rhythms: Mapping[str, tuple[Rhythm, datetime]]) -> FinalState:
    """Return all rows that the judge needs. Rows that are stored twice are returned twice."""
    rows = _Rows(connection, archive)
    ended = [EndedJob(*row) for row in rows.all("jobs", "sereno.history", ("id", "task", "state", "attempt"))]
    attempts = list(rows.all("attempts", "sereno.attempts", ("job_id", "number", "outcome")))
    fires = [
        Fire(*row) for row in rows.all("fires", "sereno.fires", ("schedule_id", "planned_at", "stands_for", "job_id"))
    ]
    held = connection.execute("select id, held_at, held_for, null from sereno.schedules where held_at is not null")
    fires += [Fire(*row) for row in held]
    return FinalState(
        live=one(connection, "select count(*) from sereno.jobs"),
        ended=ended,
        attempts=attempts,
        effects=[job for (job,) in connection.execute("select job from effects")],
        items=connection.execute("select job, item from items").fetchall(),
        fires=fires,
        schedules=_schedules(connection, rhythms),
        deliveries=[
            Delivery(*row) for row in connection.execute("select id, event_id, state, unknowns from sereno.deliveries")
        ],
        recipients=RECIPIENTS,
        violations=_violations(connection),
        archived=rows.archived,
    )


def _schedules(
    connection: psycopg.Connection, rhythms: Mapping[str, tuple[Rhythm, datetime]]
) -> dict[int, PlannedInstants]:
    found = connection.execute("select id, key, last_planned_at from sereno.schedules").fetchall()
    return {
        number: PlannedInstants(key, rhythms[key][1], rhythms[key][0].step.total_seconds(), last)
        for number, key, last in found
        if key in rhythms
    }


def _violations(connection: psycopg.Connection) -> list[str]:
    """Return what `sereno verify` finds in all rows."""
    with connection.transaction():
        found = run(connection, verify(lease=LEASE, window=None, timeout=TIMEOUT))
    return [f"{check.name}: {row.id}: {row.what}" for check in found for row in check.violations]


class _Rows:
    """Rows of a kind, wherever they are."""

    def __init__(self, connection: psycopg.Connection, archive: Path) -> None:
        self._connection = connection
        self._archive = archive
        self.archived = 0

    def all(self, kind: str, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        names = ", ".join(columns)
        yield from self._connection.execute(f"select {names} from {table}".encode())
        batches = self._connection.execute(
            "select id, held_in from sereno.archive_batches where kind = %s", [kind]
        ).fetchall()
        for batch, held in batches:
            if held is not None:
                yield from self._connection.execute(f'select {names} from sereno_archive."{held}"'.encode())
            else:
                yield from self._filed(batch, columns)

    def _filed(self, batch: int, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        objects = self._connection.execute("select object from sereno.archive_files where batch_id = %s", [batch])
        for (name,) in objects.fetchall():
            table = pq.read_table(self._archive / name, columns=list(columns))
            self.archived += table.num_rows
            yield from zip(*(table.column(column).to_pylist() for column in columns), strict=True)
