"""A verifier beside another one that finds a file broken."""

import threading
from pathlib import Path

import msgspec
import psycopg

from sereno import Sereno
from sereno.archive import store
from sereno.archive.rows import FileSelection
from sereno.archive.verifier import ArchiveVerifier
from sereno.database.statement import run
from tests.archive.archive_steps import DAY, add_logs, archiver
from tests.facts import advance, one, until
from tests.jobs.job_steps import waits_for_a_lock


async def test_a_file_that_is_found_broken_while_it_is_read_stays_broken(
    app: Sereno, connection: psycopg.Connection, place: Path, database_url: str
) -> None:
    """The other verifier holds the row until this one has read the file and wants to write its result."""
    add_logs(connection, 5)
    advance(connection, 60 * DAY)
    settings = msgspec.structs.replace(app.settings, archive_url=f"file://{place}")
    each = archiver(app, place, archive_grace_days=7)
    await each.move()
    await each.export()
    (batch,) = connection.execute("select batch_id from sereno.archive_files").fetchall()[0]
    verifier = ArchiveVerifier(app.database, settings)
    thread = threading.Thread(target=verifier.verify, args=(FileSelection(), None, lambda *_: None))
    with psycopg.connect(database_url) as other:
        run(other, store.failed(batch, 1, "its checksum differs"))
        run(other, store.reopen(batch, 1))
        thread.start()
        until(lambda: waits_for_a_lock(connection))
    thread.join()
    assert run(connection, store.open_files()) == [(batch, 1)]
    assert one(connection, "select error from sereno.archive_files") == "its checksum differs"
