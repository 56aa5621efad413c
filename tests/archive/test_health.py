"""The archive in the doctor's findings, in the alert conditions, and among the invariants."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.monitoring.alerts.condition import AlertCondition
from sereno.monitoring.alerts.current_conditions import current_conditions
from sereno.monitoring.alerts.watcher import AlertWatcher
from sereno.monitoring.doctor import DoctorCheck, doctor
from sereno.monitoring.verify import verify
from sereno.settings import A_DAY
from tests.facts import advance, one
from tests.monitoring.verify_steps import found_inside, undone
from tests.server.api.archive.archived import archive, export, fill, move, old_delivery

ARCHIVE = ("archive.unverified", "archive.behind")


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[Sereno]:
    """An application that archives into a directory."""
    made = Sereno(database_url, archive_url=f"file://{tmp_path / 'archive'}", keep_deliveries_days=30)
    yield made
    made.close()


def conditions(app: Sereno, **options: str) -> dict[str, AlertCondition]:
    found = app.database.run(current_conditions(app.settings, **options))
    return {each.kind: each for each in found if each.kind in ARCHIVE}


def check(app: Sereno) -> DoctorCheck:
    """Return the worst finding about the archive."""
    found = [each for each in app.database.run(doctor(app.settings)) if each.name == "archive"]
    return max(found, key=lambda each: ("ok", "warn", "fail").index(each.level))


def broken(app: Sereno, window: int | None = 1000) -> dict[str, list[str]]:
    results = app.database.run(verify(lease=30.0, window=window))
    return {result.name: [each.what for each in result.violations] for result in results if not result.holds}


def block_directory(tmp_path: Path) -> Path:
    """Put a file where the directory of the files should be."""
    place = tmp_path / "archive"
    place.write_text("in the way")
    return place


@pytest.mark.slow
def test_an_archive_that_keeps_up_has_no_findings(app: Sereno, connection: psycopg.Connection) -> None:
    assert (check(app).level, check(app).message) == ("ok", "on time")
    fill(connection)
    archive(app)
    assert conditions(app) == {}
    assert check(app).level == "ok"
    assert broken(app) == {}


def test_without_an_archive_nothing_is_late(database_url: str, connection: psycopg.Connection) -> None:
    fill(connection, 100)
    app = Sereno(database_url)
    assert conditions(app) == {}
    assert check(app).message == "off: rows past their retention are deleted"
    app.close()


@pytest.mark.slow
def test_rows_that_are_two_days_late_are_reported(app: Sereno, connection: psycopg.Connection) -> None:
    """A partition leaves thirty days after its end; the archive has two nights for it."""
    fill(connection, 32)
    assert conditions(app) == {}
    fill(connection, 34, first=100)
    behind = conditions(app)["archive.behind"]
    assert (behind.level, behind.remedy) == ("warn", "sereno archive run")
    assert re.match(r"The archive is 3 d( \d+ h)? behind: old rows", behind.words)
    assert check(app).level == "warn"
    assert re.match(r"it is 3 d( \d+ h)? behind: old rows", check(app).message)
    assert conditions(app, tenant="ann") == {}
    move(app)
    assert conditions(app) == {}


@pytest.mark.slow
def test_a_batch_that_is_not_exported_is_reported(app: Sereno, connection: psycopg.Connection) -> None:
    fill(connection, 40)
    move(app)
    assert conditions(app) == {}
    advance(connection, 2 * A_DAY + 60)
    assert set(conditions(app)) == {"archive.behind"}
    assert export(app) == []
    assert conditions(app) == {}


def test_late_dead_letters_and_log_lines_are_reported(
    database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    app = Sereno(database_url, archive_url=f"file://{tmp_path}", keep_dead_days=10, archive_kinds=["jobs"])
    line = "insert into sereno.logs (at, level, event, message) values (now() - interval '1 year', 'info', 'x', 'y')"
    connection.execute(line)
    assert conditions(app) == {}
    fill(connection, 13)
    connection.execute("update sereno.history set state = 'dead', reason = 'x' where id = 1")
    assert one(connection, "select count(*) from sereno.history_dead") == 1
    assert set(conditions(app)) == {"archive.behind"}
    # Restored rows are old on purpose.
    connection.execute(
        "insert into sereno.restored (kind, key, batch_id, digest, until) "
        "values ('jobs', '1', 1, '', now() + interval '1 day')"
    )
    assert conditions(app) == {}
    app.close()


@pytest.mark.slow
def test_a_file_that_could_not_be_written_is_reported(
    app: Sereno, connection: psycopg.Connection, tmp_path: Path
) -> None:
    fill(connection, 40)
    move(app)
    place = block_directory(tmp_path)
    assert export(app)
    advance(connection, 3 * A_DAY)
    failed = conditions(app)
    assert set(failed) == {"archive.unverified"}
    assert (failed["archive.unverified"].level, failed["archive.unverified"].values["count"]) == ("bad", 1)
    assert "could not" in failed["archive.unverified"].words
    assert failed["archive.unverified"].since is not None
    assert (check(app).level, "1 files could not" in check(app).message) == ("fail", True)
    assert broken(app) == {}
    place.unlink()
    assert export(app) == []
    assert conditions(app) == {}


async def test_an_alert_rule_can_use_the_archive(app: Sereno, connection: psycopg.Connection) -> None:
    """The watcher of alert rules checks the archive with the settings of its process."""
    fill(connection, 40)
    watch = AlertWatcher(app.url, app.settings, lambda: True)
    seen = await watch._see(None)
    assert "archive.behind" in {each.kind for each in seen.found}
    assert seen.blind == set()
    await watch.stop()


# The invariant, the words of its report, and the change that violates it.
VIOLATIONS = (
    ("archive_tables", "does not exist", "drop table sereno_archive.{held}"),
    ("archive_tables", "stray of the archive belongs to no batch", "create table sereno_archive.stray (id int)"),
    ("archive_held", "holds 29 rows, and 30 were counted", "delete from sereno_archive.{held} where id = 7"),
    ("archive_held", "holds other rows than its files", "update sereno_archive.{held} set id = 700 where id = 7"),
    (
        "archive_held",
        "holds other rows than its files",
        "update sereno_archive.{held} set queue = 'x' where id = 7",
    ),
    ("archive_verified", "one of its files is not verified", "update sereno.archive_files set verified_at = null"),
    ("archive_verified", "its files hold 29 rows, and it has 30", "update sereno.archive_files set rows = 29"),
    ("archive_verified", "has no file", "delete from sereno.archive_files"),
)


def test_a_broken_invariant_is_reported(app: Sereno, connection: psycopg.Connection, subtests: pytest.Subtests) -> None:
    fill(connection)
    archive(app)
    assert broken(app) == broken(app, None) == {}
    held = one(connection, "select held_in from sereno.archive_batches")
    for promise, words, change in VIOLATIONS:
        with subtests.test(change=change), undone(connection):
            connection.execute(change.format(held=held).encode())
            for window in (1000, None):
                ((name, found),) = found_inside(connection, window).items()
                assert name == promise
                assert any(words in each for each in found.values()), found


@pytest.mark.slow
def test_a_dropped_batch_with_missing_rows_is_reported(app: Sereno, connection: psycopg.Connection) -> None:
    fill(connection)
    archive(app)
    advance(connection, 8 * A_DAY)
    assert export(app) == []
    assert broken(app) == {}
    connection.execute("update sereno.archive_files set rows = rows - 1")
    (found,) = broken(app)["archive_verified"]
    assert found.startswith("it is dropped, its files hold 29 rows")


@pytest.mark.slow
def test_a_table_beyond_the_window_is_not_counted(app: Sereno, connection: psycopg.Connection) -> None:
    fill(connection)
    archive(app)
    held = one(connection, "select held_in from sereno.archive_batches")
    connection.execute(f"delete from sereno_archive.{held} where id = 7".encode())
    assert broken(app, 10) == {}
    assert set(broken(app, 30)) == {"archive_held"}


@pytest.mark.slow
def test_an_inbox_item_may_refer_to_an_archived_delivery(app: Sereno, connection: psycopg.Connection) -> None:
    number = old_delivery(connection)
    connection.execute(
        "insert into sereno.inbox (recipient_id, delivery_id, event, title, body) "
        "select recipient_id, id, 'x', 'y', 'z' from sereno.deliveries"
    )
    assert broken(app) == {}
    move(app)
    assert one(connection, "select count(*) from sereno.deliveries where id = %s", number) == 0
    assert broken(app) == {}
    assert export(app) == []
    assert broken(app) == {}
    connection.execute("update sereno.inbox set delivery_id = 999")
    assert set(broken(app)) == {"inbox_delivered"}


@pytest.mark.slow
def test_the_archive_is_checked_in_another_schema(
    database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    app = Sereno(database_url, schema="other", archive_url=f"file://{tmp_path}")
    app.migrate()
    assert broken(app) == {}
    connection.execute("create table other_archive.stray (id int)")
    assert set(broken(app)) == {"archive_tables"}
    asyncio.run(app.database.aclose())
    app.close()
