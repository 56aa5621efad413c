"""`sereno queue carry` and `show`, and carried queues in `list` and `status`: output and effect."""

import json
from pathlib import Path

import psycopg
import pytest

from tests.carriers.report_steps import add_batch, report, report_failure
from tests.cli.conftest import Command
from tests.cli.terminal import screen
from tests.facts import advance, one
from tests.jobs.job_steps import add

APP = """
from sereno import JetStream, Sereno

app = Sereno()
app.queue("clicks", carrier=JetStream("nats://ann:secret@a:4222"))
"""


def test_a_share_is_set_raised_and_taken_back(sereno: Command, connection: psycopg.Connection) -> None:
    report(connection, pending_messages=3)
    first = sereno("queue", "carry", "clicks", "--to", "jetstream", "--share", "10%")
    assert first.exit_code == 0, first.stderr
    assert "clicks: 100 % → 10 % of new jobs go to jetstream at a:4222,b:4222." in first.stdout
    assert "Workers follow within 5 s" in first.stdout
    again = sereno("queue", "carry", "clicks", "--to", "jetstream", "--share", "10")
    assert "10 % of new jobs go to jetstream at a:4222,b:4222, as before." in again.stdout
    assert "10 % → 100 %" in sereno("queue", "carry", "clicks", "--to", "jetstream").stdout
    back = sereno("queue", "carry", "clicks", "--to", "postgres", "-o", "json")
    assert {name: json.loads(back.stdout)[name] for name in ("queue", "before", "share", "recovered")} == {
        "queue": "clicks",
        "before": 100,
        "share": 0,
        "recovered": 0,
    }
    rows = connection.execute("select action, subject, detail from sereno.audit order by id").fetchall()
    assert rows == [
        ("queue.carry", "queue clicks", {"before": 100, "share": 10}),
        ("queue.carry", "queue clicks", {"before": 10, "share": 100}),
        ("queue.carry", "queue clicks", {"before": 100, "share": 0}),
    ]


def test_a_dry_run_changes_nothing(sereno: Command, connection: psycopg.Connection) -> None:
    report(connection)
    result = sereno("queue", "carry", "clicks", "--to", "postgres", "--dry-run")
    assert "Would change clicks: 100 % → 0 % of new jobs go to jetstream" in result.stdout
    assert one(connection, "select count(*) from sereno.carried_queues") == 0
    assert one(connection, "select count(*) from sereno.audit") == 0


def test_a_queue_without_a_carrier_is_refused(sereno: Command, connection: psycopg.Connection, tmp_path: Path) -> None:
    nothing = sereno("queue", "carry", "clicks", "--to", "jetstream")
    assert (nothing.exit_code, "declare one with app.queue" in nothing.stderr) == (7, True)
    report(connection)
    near = sereno("queue", "carry", "click", "--to", "jetstream")
    assert (near.exit_code, "did you mean clicks?" in near.stderr) == (7, True)
    far = sereno("queue", "carry", "mails", "--to", "jetstream")
    assert (far.exit_code, "carried queues: clicks" in far.stderr) == (7, True)
    for words in (
        ("--share", "101%"),
        ("--share", "ten"),
        ("--to", "postgres", "--share", "10%"),
        ("--recover",),
        ("--to", "kafka"),
    ):
        assert sereno("queue", "carry", "clicks", "--to", "jetstream", *words).exit_code == 2, words
    assert one(connection, "select count(*) from sereno.carried_queues") == 0


def test_the_application_tells_its_carried_queues(
    sereno: Command, connection: psycopg.Connection, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    result = sereno("queue", "carry", "clicks", "--to", "postgres", "-a", "shop:app")
    assert result.exit_code == 0, result.stderr
    assert one(connection, "select share from sereno.carried_queues") == 0


def test_giving_up_a_carrier_returns_the_jobs_on_their_way(sereno: Command, connection: psycopg.Connection) -> None:
    report(connection)
    add_batch(connection, 11, 12, 13)
    add_batch(connection, 14, queue="other")
    result = sereno("queue", "carry", "clicks", "--to", "postgres", "--recover")
    assert result.exit_code == 0, result.stderr
    assert "3 jobs on the way to the carrier returned to PostgreSQL." in result.stdout
    rows = connection.execute("select id, state, queue from sereno.jobs order by id").fetchall()
    assert rows == [(11, "ready", "clicks"), (12, "ready", "clicks"), (13, "ready", "clicks")]
    assert one(connection, "select queue from sereno.relay_batches") == "other"
    assert one(connection, "select detail from sereno.audit") == {"before": 100, "share": 0, "recovered": 3}


def test_show_counts_both_sides(sereno: Command, connection: psycopg.Connection) -> None:
    add(connection, 2, queue="clicks")
    add(connection, 1, queue="plain")
    add_batch(connection, 11, 12, 13)
    report(
        connection,
        pending_messages=7,
        held_messages=2,
        redelivered_messages=1,
        bytes=12 * 1024,
        max_bytes=1024 * 1024,
        current_replicas=2,
        oldest=30.0,
    )
    page = sereno("queue", "show", "clicks").stdout
    assert "PostgreSQL  2 ready, 0 running, 0 scheduled, 0 waiting" in page
    assert "jetstream   about 9 jobs in 9 messages: 7 waiting, 2 held by workers, 1 of them delivered again" in page
    assert "relay       3 jobs in 1 message to publish" in page
    assert "share       100 % of new jobs go to jetstream at a:4222,b:4222" in page
    assert "stream      12 kB of 1.0 MB; 2 of 3 replicas, leader a" in page
    assert "state       it answers; reported" in page
    assert "secret" not in page
    found = json.loads(sereno("queue", "show", "clicks", "-o", "json").stdout)
    assert (found["carrier"]["pending_messages"], found["carrier"]["relay_jobs"]) == (7, 3)
    assert "carrier     none: all its jobs are in PostgreSQL" in sereno("queue", "show", "plain").stdout
    missing = sereno("queue", "show", "click")
    assert (missing.exit_code, "did you mean clicks?" in missing.stderr) == (7, True)


def test_show_says_when_a_carrier_can_be_removed(sereno: Command, connection: psycopg.Connection) -> None:
    report(connection, pending_messages=1)
    sereno("queue", "carry", "clicks", "--to", "postgres")
    assert "you can remove" not in sereno("queue", "show", "clicks").stdout
    advance(connection, 5)
    report(connection)
    assert "the stream is empty, and no new job goes there: you can remove the carrier" in (
        sereno("queue", "show", "clicks").stdout
    )


def test_a_carrier_that_is_away_is_named(sereno: Command, connection: psycopg.Connection) -> None:
    report_failure(connection)
    page = sereno("queue", "show", "clicks").stdout
    assert "state       away: it never answered (jetstream at a:4222 did not answer)" in page
    assert "The carrier of the queue clicks is away: sereno queue show clicks" in sereno("status").stdout
    advance(connection, 60)
    assert "state       unknown: no worker of the queue has reported for 1 m" in (
        sereno("queue", "show", "clicks").stdout
    )


@pytest.mark.slow
def test_lists_have_columns_of_carriers_only_with_a_carried_queue(
    sereno: Command, connection: psycopg.Connection, database_url: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    add(connection, 2, queue="mails")
    assert "share" not in sereno("queue", "list").stdout
    assert "share" not in screen(["status"], database_url, tmp_path, 140)
    report(connection, pending_messages=12_345)
    heading, *rows = [line.split("\t") for line in sereno("queue", "list").stdout.splitlines()]
    found = {row[0]: dict(zip(heading, row, strict=True)) for row in rows}
    assert (found["clicks"]["carried"], found["clicks"]["share"], found["clicks"]["carrier"]) == (
        "~12,345",
        "100%",
        "up",
    )
    assert found["mails"]["carried"] == ""
    assert "clicks: 0 ready, 0 running, 0 scheduled, 0 waiting, about 12345 at its carrier" in sereno("status").stdout
    for width in (80, 140):
        for words in (["queue", "list"], ["status"], ["queue", "show", "clicks"]):
            with subtests.test(width=width, command=words):
                lines = screen(words, database_url, tmp_path, width).splitlines()
                assert all(len(line.rstrip()) <= width for line in lines)
                assert not any("…" in line for line in lines)
                assert "12,345" in "".join(lines)
