"""Steps of the tests that move rows directly on the store."""

from pathlib import Path

from sereno.archive.rows import FileMeasure
from tests.archive.archive_steps import (
    DAY,
)
from tests.facts import one
from tests.jobs.job_steps import Connection

NOWHERE = Path("/nowhere")
# Rows of a move, and the age of rows that are moved.
MOST = 100_000
AGE = 30.0 * DAY


def batches(connection: Connection) -> list[tuple[str, int]]:
    """Return kind and rows of each batch."""
    found = connection.execute("select kind, held_in from sereno.archive_batches order by id").fetchall()
    return [(kind, one(connection, f'select count(*) from sereno_archive."{held}"')) for kind, held in found]


def today(connection: Connection, parent: str = "history_done") -> str:
    return str(one(connection, f"select '{parent}_' || to_char(sereno.now() at time zone 'UTC', 'YYYYMMDD')"))


def measure(connection: Connection, batch: int) -> FileMeasure:
    """Return what the first file of a batch must hold, computed from the table."""
    names = ", ".join(FileMeasure.__slots__)
    return FileMeasure(*connection.execute(f"select {names} from sereno.measure_file(%s, 1)", [batch]).fetchall()[0])
