"""Archived rows are restored unchanged, once, for a while; and are removed again if they have not changed."""

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.archive import restore
from sereno.archive import restore_store as store
from sereno.archive.restore import RestoreRequest
from sereno.archive.rows import TimeSpan
from sereno.archive.store import drop_batch
from sereno.database.driver import drive
from sereno.database.statement import Operation, run
from sereno.errors import ArchiveUnavailable, InvalidArguments, Refused
from sereno.jobs import transitions
from tests.archive.archive_steps import (
    DAY,
    HOT,
    TENDERS,
    add_deliveries,
    add_event,
    add_everything,
    add_jobs,
    add_logs,
    add_tenders,
    archiver,
)
from tests.archive.restore_steps import EVER, archive, cold, digests, restore_rows
from tests.facts import advance, one, state, until

KINDS = ("jobs", "deliveries", "events", "fires", "logs", "public.tenders")
TABLES = (*HOT.values(), "public.tenders")
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@pytest.mark.slow
async def test_every_kind_is_restored_unchanged_from_held_tables(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_everything(connection)
    before = digests(connection, *TABLES)
    advance(connection, 60 * DAY)
    await archive(app, place, TENDERS, grace=7)
    restore_every_kind(app, connection, place, before)


def restore_every_kind(app: Sereno, connection: psycopg.Connection, place: Path, before: dict[str, list[str]]) -> None:
    """Restore everything that was archived, and compare it with what was there before."""
    assert not any(digests(connection, *TABLES).values())
    for kind in KINDS:
        outcome = restore_rows(app, place, kind)
        assert (outcome.rows.restored, outcome.rows.refused) == (outcome.rows.found, 0)
    assert digests(connection, *TABLES) == before
    marks = one(connection, "select count(*) from sereno.restored")
    assert marks == sum(map(len, before.values()))


@pytest.mark.slow
async def test_every_kind_is_restored_unchanged_from_files_until_it_expires(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_everything(connection)
    before = digests(connection, *TABLES)
    advance(connection, 60 * DAY)
    await archive(app, place, TENDERS)
    restore_every_kind(app, connection, place, before)
    files = one(connection, "select count(*) from sereno.archive_files")
    await archive(app, place, TENDERS)
    assert digests(connection, *TABLES) == before, "a move ignores restored rows"
    advance(connection, 31 * DAY)
    await archive(app, place, TENDERS)
    assert not any(digests(connection, *TABLES).values())
    assert one(connection, "select count(*) from sereno.archive_files") == files, (
        "restored rows are in the archive already"
    )
    assert one(connection, "select count(*) from sereno.restored") == 0
    assert one(connection, "select count(*) from sereno.archived_again") == 0


@pytest.mark.slow
async def test_a_job_is_restored_with_only_its_own_attempts(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_jobs(connection, 1, 20)
    advance(connection, 60 * DAY)
    await archive(app, place)
    outcome = restore_rows(app, place, "jobs", 7, "008")
    assert (outcome.rows.restored, outcome.children_kind, outcome.children.restored) == (2, "attempts", 4)
    assert connection.execute("select id from sereno.history order by id").fetchall() == [(7,), (8,)]
    assert one(connection, "select tableoid::regclass::text from sereno.history limit 1") == (
        "sereno.history_done_default"
    )
    assert one(connection, "select count(*) from sereno.attempts where job_id in (7, 8)") == 4
    assert one(connection, "select count(*) from sereno.attempts") == 4


@pytest.mark.slow
async def test_a_delivery_is_restored_with_its_receipts(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_deliveries(connection, add_event(connection), count=3)
    advance(connection, 60 * DAY)
    await archive(app, place)
    chosen = one(connection, "select min(first_id) from sereno.archive_files where kind = 'deliveries'")
    outcome = restore_rows(app, place, "deliveries", chosen)
    assert (outcome.rows.restored, outcome.children.restored) == (1, 2)
    assert connection.execute("select distinct delivery_id from sereno.receipts").fetchall() == [(chosen,)]


@pytest.mark.slow
async def test_a_second_restore_makes_no_duplicates(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_jobs(connection, 1, 5)
    advance(connection, 60 * DAY)
    await archive(app, place)
    restore_rows(app, place, "jobs", 1)
    before = digests(connection, *TABLES[:-1])
    outcome = restore_rows(app, place, "jobs", 1, keep=60.0 * DAY)
    assert (outcome.rows.found, outcome.rows.restored, outcome.rows.present) == (1, 0, 1)
    assert digests(connection, *TABLES[:-1]) == before
    left = one(connection, "select min(until) - sereno.now() from sereno.restored where kind = 'jobs'")
    assert left.days == 59, "a longer restore extends it"
    restore_rows(app, place, "jobs", 1, keep=1.0)
    assert one(connection, "select min(until) - sereno.now() from sereno.restored").days == 59


@pytest.mark.slow
async def test_a_job_that_is_live_again_is_not_overwritten(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_jobs(connection, 1, 1)
    # A live job has no empty list of tags.
    connection.execute("update sereno.history set tags = array['ä', 'a,b']")
    advance(connection, 60 * DAY)
    await archive(app, place)
    restore_rows(app, place, "jobs", 1)
    app.database.run(transitions.requeue([1]))
    assert state(connection, 1) == "ready"
    outcome = restore_rows(app, place, "jobs", 1)
    assert (outcome.rows.restored, outcome.rows.present) == (0, 1)
    assert one(connection, "select count(*) from sereno.history") == 0
    advance(connection, 31 * DAY)
    await archive(app, place)
    assert one(connection, "select count(*) from sereno.restored") == 0
    assert one(connection, "select count(*) from sereno.jobs") == 1


@pytest.mark.slow
async def test_two_concurrent_restores_make_one_row(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_jobs(connection, 1, 30)
    advance(connection, 60 * DAY)
    await archive(app, place)
    found: list[int] = []

    def restore_in_thread() -> None:
        found.append(restore_rows(app, place, "jobs").rows.restored)

    threads = [threading.Thread(target=restore_in_thread) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(found) == 30
    assert one(connection, "select count(*) from sereno.history") == 30
    assert one(connection, "select count(*) from sereno.attempts") == 60


@pytest.mark.slow
async def test_a_changed_row_is_archived_again_and_restored_in_its_last_state(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_jobs(connection, 1, 5)
    add_tenders(connection, 5)
    advance(connection, 60 * DAY)
    await archive(app, place, TENDERS)
    restore_rows(app, place, "jobs")
    restore_rows(app, place, "public.tenders")
    connection.execute("update sereno.history set reason = 'changed' where id = 2")
    connection.execute(
        "insert into sereno.attempts (job_id, number, started_at, finished_at, outcome) "
        "values (3, 3, sereno.now(), sereno.now(), 'retry')"
    )
    connection.execute("update public.tenders set price = 7 where part = 4")
    changed = digests(connection, *TABLES)
    advance(connection, 31 * DAY)
    await archive(app, place, TENDERS)
    assert not any(digests(connection, *TABLES).values())
    again = connection.execute("select kind, key from sereno.archived_again where kind <> 'attempts' order by 1, 2")
    assert again.fetchall() == [("jobs", "2"), ("jobs", "3"), ("public.tenders", "ä 4\n\t4")]
    assert one(connection, "select sum(rows) from sereno.archive_batches where kind = 'jobs'") == 7
    restore_rows(app, place, "jobs")
    restore_rows(app, place, "public.tenders")
    assert digests(connection, *TABLES) == changed


@pytest.mark.slow
async def test_a_restored_row_stays_if_its_file_is_broken(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_logs(connection, 3)
    advance(connection, 60 * DAY)
    await archive(app, place)
    restore_rows(app, place, "logs")
    connection.execute("update sereno.archive_files set failed_at = sereno.now(), error = 'broken'")
    advance(connection, 31 * DAY)
    await archiver(app, place).move()
    held = one(connection, "select held_in from sereno.archive_batches order by id desc limit 1")
    assert one(connection, f"select count(*) from sereno_archive.{held}") == 3, "they are archived again"


@pytest.mark.slow
async def test_a_restored_dead_job_does_not_block_its_order_key(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_jobs(connection, 1, 1, "dead")
    connection.execute("""update sereno.history set keys = '{"order": "r1", "blocks": true, "fair": "x"}'""")
    advance(connection, 60 * DAY)
    await archive(app, place)
    restore_rows(app, place, "jobs", 1)
    assert one(connection, "select keys from sereno.history_dead") == {"order": "r1", "fair": "x"}
    advance(connection, 31 * DAY)
    await archive(app, place)
    assert one(connection, "select count(*) from sereno.history") == 0
    assert one(connection, "select count(*) from sereno.archived_again") == 0


@pytest.mark.slow
async def test_a_file_that_differs_from_the_verified_one_is_not_used(
    app: Sereno, connection: psycopg.Connection, place: Path
) -> None:
    add_logs(connection, 3)
    advance(connection, 60 * DAY)
    await archive(app, place)
    file = place / one(connection, "select object from sereno.archive_files")
    content = file.read_bytes()
    for broken in (content[:-1], content[:100] + b"x" + content[101:]):
        file.write_bytes(broken)
        with pytest.raises(ArchiveUnavailable, match="differs from the file that was verified"):
            restore_rows(app, place, "logs")
    file.unlink()
    with pytest.raises(ArchiveUnavailable, match="is not in the archive"):
        restore_rows(app, place, "logs")
    assert one(connection, "select count(*) from sereno.logs") == 0


async def test_a_time_span_is_restored(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    for _ in range(4):
        add_logs(connection, 2)
        advance(connection, DAY)
    advance(connection, 60 * DAY)
    await archive(app, place)
    first, last = connection.execute("select min(from_at), max(to_at) from sereno.archive_files").fetchone() or ()
    day = (last - first) / 3
    span = TimeSpan(from_at=first + day / 2, to_at=last - day / 2)
    assert drive(restore.count(RestoreRequest("logs", span), cold(place), lambda *_: None), app.database.run) == 4
    outcome = drive(restore.restore(RestoreRequest("logs", span), cold(place), lambda *_: None), app.database.run)
    assert outcome.rows.restored == 4
    assert one(connection, "select count(distinct at) from sereno.logs") == 2


@pytest.mark.slow
async def test_many_rows_need_a_confirmation_and_are_audited(
    app: Sereno, connection: psycopg.Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "MOST", 5)
    add_logs(connection, 6)
    advance(connection, 60 * DAY)
    await archive(app, place)
    with pytest.raises(Refused, match="more than 5 rows of logs"):
        restore_rows(app, place, "logs")
    assert one(connection, "select count(*) from sereno.logs") == 0
    assert one(connection, "select count(*) from sereno.audit") == 0
    restore_rows(app, place, "logs", yes=True, actor="ada")
    audit = connection.execute("select actor, action, subject, detail ->> 'count' from sereno.audit").fetchall()
    assert audit == [("ada", "archive.restore", "6 logs", "6")]


@pytest.mark.slow
async def test_invalid_requests_are_refused(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_logs(connection, 1)
    connection.execute(
        "insert into sereno.fires (planned_at, schedule_id, fired_at) values (sereno.now(), 1, sereno.now())"
    )
    advance(connection, 60 * DAY)
    await archive(app, place)
    for kind, keys, words in (
        ("banana", [1], "it has fires, logs"),
        ("attempts", [1], "no rows of 'attempts'"),
        ("logs", ["x"], "is a number"),
        ("logs", ["1; drop table"], "is a number"),
        ("logs", [2**63], "is a number"),
        ("fires", [1], "have no ids"),
    ):
        with pytest.raises(InvalidArguments, match=words):
            restore_rows(app, place, kind, *keys)
    for span in (TimeSpan(), TimeSpan(keys=[]), TimeSpan(keys=["1"], from_at=EVER), TimeSpan(from_at=EVER, to_at=EVER)):
        with pytest.raises(InvalidArguments):
            RestoreRequest("logs", span).check()
    with pytest.raises(InvalidArguments):
        RestoreRequest("logs", TimeSpan(keys=["1"]), keep=0.0).check()


@pytest.mark.slow
async def test_an_interrupted_restore_can_be_repeated(app: Sereno, connection: psycopg.Connection, place: Path) -> None:
    add_jobs(connection, 1, 5)
    before = digests(connection, *TABLES[:2])
    advance(connection, 60 * DAY)
    await archive(app, place)
    with closing(restore.restore(RestoreRequest("jobs", TimeSpan(to_at=EVER)), cold(place), lambda *_: None)) as plan:
        operation = next(plan)
        while one(connection, "select count(*) from sereno.history") == 0:
            operation = plan.send(app.database.run(operation))
    assert one(connection, "select count(*) from sereno.attempts") == 0, (
        "the restore was interrupted between the two tables"
    )
    outcome = restore_rows(app, place, "jobs")
    assert (outcome.rows.present, outcome.children.restored) == (5, 10)
    assert digests(connection, *TABLES[:2]) == before


@pytest.mark.slow
async def test_a_restore_that_waited_for_the_drop_of_its_batch_can_be_repeated(
    app: Sereno, connection: psycopg.Connection, place: Path, database_url: str
) -> None:
    """Its error is one that a job retries: the rows are in a file now."""
    add_logs(connection, 1)
    advance(connection, 60 * DAY)
    await archive(app, place, grace=1)
    advance(connection, 2 * DAY)
    span = TimeSpan(to_at=EVER)
    (source,) = app.database.run(store.sources("logs", span))
    errors: list[psycopg.Error] = []

    def wait_for_the_drop(operation: Operation[Any]) -> None:
        try:
            app.database.run(operation)
        except psycopg.Error as error:
            errors.append(error)

    operations = [store.count_held(source, (0, 1), span), store.restore_held(source, (0, 1), span, 60.0, ())]
    threads = [threading.Thread(target=wait_for_the_drop, args=[operation]) for operation in operations]
    with psycopg.connect(database_url) as dropper:
        assert run(dropper, drop_batch(source.batch))
        for thread in threads:
            thread.start()
        until(lambda: one(connection, WAITING) == len(threads))
    for thread in threads:
        thread.join()
    assert [str(error).partition("\n")[0] for error in errors] == ["batch 1 was dropped meanwhile"] * 2
    assert {type(error) for error in errors} == {psycopg.errors.ObjectNotInPrerequisiteState}
    assert restore_rows(app, place, "logs").rows.restored == 1


@pytest.mark.slow
async def test_rows_are_restored_in_another_schema(
    database_url: str, connection: psycopg.Connection, place: Path
) -> None:
    elsewhere = Sereno(database_url, schema="elsewhere")
    elsewhere.migrate()
    try:
        connection.execute(
            "insert into elsewhere.logs (at, level, event, message) "
            "select elsewhere.now() - interval '60 days', 'info', 'job.log', n from generate_series(1, 3) as n"
        )
        before = digests(connection, "elsewhere.logs")
        await archive(elsewhere, place)
        assert digests(connection, "elsewhere.logs") == {"elsewhere.logs": []}
        assert restore_rows(elsewhere, place, "logs").rows.restored == 3
        assert digests(connection, "elsewhere.logs") == before
        assert one(connection, "select count(*) from sereno.restored") == 0
        connection.execute("update elsewhere.restored set until = elsewhere.now()")
        await archive(elsewhere, place)
        assert digests(connection, "elsewhere.logs") == {"elsewhere.logs": []}
    finally:
        await elsewhere.aclose()
