"""`sereno schedule show`: the last run, skips and pauses of one schedule."""

import json
import re
import secrets
from pathlib import Path

import psycopg
import pytest

from sereno.error_text import describe
from sereno.jobs.attempt import Settlement
from sereno.jobs.job import ClaimedJob
from tests.cli.conftest import Command
from tests.cli.schedules.schedule_steps import add, shown
from tests.cli.terminal import screen
from tests.facts import advance
from tests.manual_worker import ManualWorker


def line(sereno: Command, key: str, label: str) -> str:
    """Return the text beside a label."""
    page = sereno("schedule", "show", key).stdout
    (found,) = re.findall(rf"^{label} +(.*)$", page, re.MULTILINE)
    return str(found)


def runs(sereno: Command, key: str, *words: str) -> list[str]:
    page = sereno("schedule", "show", key, *words).stdout
    return [text[12:] for text in page[page.index("\nruns ") + 1 :].splitlines()]


def started(sereno: Command, manual: ManualWorker, *words: str) -> tuple[int, ClaimedJob]:
    """Create a schedule whose first run is active."""
    add(sereno, "k", "--every", "1h", *words)
    manual.connection.execute("update sereno.schedules set task = 'greet'")
    advance(manual.connection, 3700)
    sereno("schedule", "tick")
    session = manual.worker(lease=10**7)
    (job,) = manual.claim(session)
    return session, job


# The last run


@pytest.mark.slow
def test_a_run_that_waits_for_a_retry_is_shown_with_its_effect(sereno: Command, manual: ManualWorker) -> None:
    session, job = started(sereno, manual)
    manual.settle(session, job, Settlement("retry", error=describe(OSError("reset")), failed=1, delay=90000.0))
    for _ in range(12):
        advance(manual.connection, 3600)
        sereno("schedule", "tick")
    words = line(sereno, "k", "last run")
    assert re.fullmatch(
        rf"job {job.id}, waits for a retry at .*\d\d:\d\d.* UTC; the next instants are skipped until it ends", words
    )
    skipped, run = runs(sereno, "k")
    assert re.search(r"skipped: the previous run was still active \(12 instants since .* UTC\)$", skipped)
    assert f"job {job.id}   scheduled" in run
    assert [text.split() for text in runs(sereno, "k", "-n", "1")] == [skipped.split()]
    found = json.loads(sereno("schedule", "show", "k", "-n", "10", "-o", "json").stdout)
    assert len(found["fires"]) == 10
    assert (found["last_job"]["id"], found["last_job"]["state"]) == (job.id, "scheduled")


def test_a_run_shows_its_start_duration_and_counts(sereno: Command, manual: ManualWorker) -> None:
    session, job = started(sereno, manual)
    advance(manual.connection, 12)
    raw = b'{"new": 3, "found": 12345, "share": 0.25, "ok": true, "note": "x", "inner": {"n": 1}, "huge": 1e30}'
    manual.settle(session, job, Settlement("succeeded", result=raw))
    (run,) = runs(sereno, "k")
    assert re.search(
        r"UTC   job \d+   succeeded after 12 s, started 1 m late · found 12,345 · new 3 · share 0.25$", run
    ), run
    (fire,) = json.loads(sereno("schedule", "show", "k", "-o", "json").stdout)["fires"]
    assert fire["counts"] == {"found": 12345, "new": 3, "share": 0.25}
    assert fire["state"] == "succeeded"
    assert fire["duration"] >= 12
    assert fire["error"] is None


# Longer than what is read for counts, also when it is compressed.
LONG_RESULT = b'{"n": 1, "long": "%s"}' % secrets.token_hex(100_000).encode()


@pytest.mark.slow
def test_a_result_without_numbers_shows_no_counts(sereno: Command, manual: ManualWorker) -> None:
    for raw in (b'"12"', b"[1, 2]", b"7", b'{"note": "x"}', LONG_RESULT):
        session, job = started(sereno, manual)
        manual.settle(session, job, Settlement("succeeded", result=raw))
        (run,) = runs(sereno, "k", "-n", "1")
        assert " · " not in run
        sereno("schedule", "delete", "k", "--yes")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "then"),
    [
        (["--overlap", "skip"], "; the next instants are skipped until it ends"),
        (["--overlap", "queue_one"], "; the next instant waits until it ends"),
        (["--overlap", "allow"], ""),
        (["--count-from", "end"], "; the next instant is planned when it ends"),
    ],
)
def test_the_effect_of_an_active_run_on_the_next_instants_is_shown(
    sereno: Command, manual: ManualWorker, words: list[str], then: str
) -> None:
    _, job = started(sereno, manual, *words)
    advance(manual.connection, 120)
    assert line(sereno, "k", "last run") == f"job {job.id}, running for 2 m{then}"
    sereno("schedule", "pause", "k")
    assert line(sereno, "k", "last run") == f"job {job.id}, running for 2 m"


@pytest.mark.slow
def test_the_last_run_is_shown_in_every_other_state(sereno: Command, manual: ManualWorker) -> None:
    add(sereno, "k", "--every", "1h", "--overlap", "allow")
    assert "last run" not in sereno("schedule", "show", "k").stdout
    assert shown(sereno, "k")["last_job"] is None
    manual.connection.execute("update sereno.schedules set task = 'greet'")
    job_id = int(sereno("schedule", "run", "k").stdout)
    assert line(sereno, "k", "last run") == f"job {job_id}, waits for a worker (sereno why {job_id})"
    session = manual.worker(lease=10**7)
    (job,) = manual.claim(session)
    manual.settle(session, job, Settlement("snooze", delay=300.0))
    assert f"job {job_id}, is snoozed until " in line(sereno, "k", "last run")
    sereno("job", "delete", str(job_id))
    advance(manual.connection, 60)
    assert re.fullmatch(rf"job {job_id}, fired \d m ago", line(sereno, "k", "last run"))


def test_an_ended_run_is_not_active(sereno: Command, manual: ManualWorker) -> None:
    session, job = started(sereno, manual)
    manual.settle(session, job, Settlement("dead", reason="failed", error=describe(OSError("reset")), failed=1))
    advance(manual.connection, 60)
    # The schedule's row is not updated yet: the list knows only that it fired, the page knows the job.
    assert re.search(r"fired \d m ago", sereno("schedule", "list", "-o", "table").stdout)
    assert line(sereno, "k", "last run") == f"job {job.id}, dead 1 m ago: OSError: reset"


# Pauses and invalid rules


def test_a_pause_with_an_end_is_shown_until_then(
    sereno: Command, connection: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    add(sereno, "k", "--daily", "06:00")
    sereno("schedule", "pause", "k", "--until", "2090-01-08T12:00+00:00", "--note", "holidays")
    text = screen(["schedule", "show", "k"], database_url, tmp_path, is_coloured=True)
    assert "\x1b[33mpaused until Sun 2090-01-08 12:00:00 UTC by " in text, "yellow"
    title, paused, first, *_ = sereno("schedule", "next", "k").stdout.splitlines()
    assert title.startswith("k   every day at 06:00")
    assert re.fullmatch(r"  paused until Sun 2090-01-08 12:00:00 UTC by .+: holidays", paused)
    assert "Mon 2090-01-09 06:00:00 UTC" in first
    connection.execute("update sereno.schedules set paused_until = sereno.now() - interval '1 second'")
    assert "paused" not in sereno("schedule", "show", "k").stdout
    assert "paused" not in sereno("schedule", "list", "-o", "table").stdout


def test_an_instant_within_the_pause_never_fires(sereno: Command) -> None:
    add(sereno, "once", "--at", "2089-01-01")
    add(sereno, "ends", "--daily", "03:00", "--ends", "2089-01-01")
    sereno("schedule", "pause", "*", "--until", "2090-01-08T12:00+00:00", "--yes")
    assert "No next run: its instant is within the pause." in sereno("schedule", "next", "once").stdout
    assert "No next run: it ends before its pause does." in sereno("schedule", "next", "ends").stdout
    assert json.loads(sereno("schedule", "next", "once", "-o", "json").stdout)["paused_until"] == "2090-01-08T12:00:00Z"


def test_an_invalid_rule_is_explained_once(sereno: Command, connection: psycopg.Connection) -> None:
    connection.execute("select sereno.schedule('bad', 'work', cron => '61 * * * *')")
    connection.execute(
        "update sereno.schedules set state = 'parked', next_run_at = null, note = %s",
        ['"61 * * * *" is not a cron expression: minute 61 is out of range 0 to 59\n 61 * * * *\n ^'],
    )
    assert line(sereno, "bad", "state").endswith("out of range 0 to 59")
    assert line(sereno, "bad", "next").endswith("out of range 0 to 59.")
    page = sereno("schedule", "show", "bad").stdout
    assert page.count("^") == 1
    assert page.endswith("0 to 59\n             61 * * * *\n             ^\n")


# Policies and widths


def test_the_page_explains_the_policies(sereno: Command) -> None:
    add(sereno, "k", "--daily", "03:00", "--unique-key", "{key}:{fire:%Y-%m}", "--unique-for", "forever")
    add(sereno, "once", "--every", "1h", "--max-fires", "1", "--disable-after", "2")
    assert line(sereno, "k", "unique key") == "{key}:{fire:%Y-%m}, forever, keep: no second job is created"
    assert line(sereno, "once", "limit") == "1 fire"
    assert line(sereno, "once", "gives up") == "after 2 failed runs in a row (0 now)"
    assert "disabled" not in sereno("schedule", "show", "once").stdout


def test_a_list_of_60_columns_keeps_the_state_whole(
    sereno: Command, connection: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    add(sereno, "reconcile:r42", "--daily", "03:00", "--tz", "America/Sao_Paulo")
    add(sereno, "bad", "--every", "1h")
    connection.execute(
        "update sereno.schedules set state = 'parked', next_run_at = null, note = %s where key = 'bad'",
        ["no time zone of this name is known to this machine"],
    )
    text = screen(["schedule", "list"], database_url, tmp_path, 60)
    assert max(map(len, text.splitlines())) <= 60
    assert re.search(r"parked\s*$", text, re.MULTILINE)
    assert re.search(r"enabled\s*$", text, re.MULTILINE)
    assert "reconcile:r42" in text
    assert "task" not in text
    add(sereno, "a-key-that-is-as-long-as-keys-are-when-programs-make-them", "--every", "1h")
    text = screen(["schedule", "list"], database_url, tmp_path, 60)
    assert re.search(r"^a-key.*….*enabled\s*$", text, re.MULTILINE)
    assert "every hour" in screen(["schedule", "list", "bad"], database_url, tmp_path, 80)


# The job of a schedule


def test_a_job_names_its_schedule_and_instant(sereno: Command, manual: ManualWorker) -> None:
    session, job = started(sereno, manual)
    planned = json.loads(sereno("job", "show", str(job.id), "-o", "json").stdout)["job"]["planned_at"]
    assert planned is not None
    page = sereno("job", "show", str(job.id)).stdout
    assert re.search(r"^schedule +k, instant \d{4}-\d\d-\d\d \d\d:\d\d", page, re.MULTILINE), page
    manual.connection.execute("delete from sereno.schedules")
    manual.settle(session, job, Settlement("succeeded"))
    assert re.search(r"^schedule +#\d+, instant ", sereno("job", "show", str(job.id)).stdout, re.MULTILINE)
