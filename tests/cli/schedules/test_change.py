"""Pausing, spreading and firing schedules from the command line, with audit records."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any

import click
import psycopg
import pytest

from sereno.cli.schedules import options as schedule_options
from sereno.jobs.attempt import Settlement
from sereno.schedules import operations as schedules
from tests.cli.conftest import Command
from tests.cli.schedules.schedule_steps import add, shown
from tests.facts import advance, one
from tests.manual_worker import ManualWorker


def state(connection: psycopg.Connection, key: str) -> Any:
    return one(connection, "select state from sereno.schedules where key = %s", key)


def audited(connection: psycopg.Connection, action: str) -> Any:
    return one(connection, "select count(*) from sereno.audit where action = %s", action)


# Pause and resume


def test_a_change_of_one_schedule_by_its_key_needs_no_yes(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--every", "1h")
    for verb, message, expected in (
        ("pause", "Paused: 1 schedule.", "paused"),
        ("resume", "Resumed: 1 schedule.", "enabled"),
        ("disable", "Disabled: 1 schedule.", "disabled"),
        ("delete", "Deleted: 1 schedule.", None),
    ):
        result = sereno("schedule", verb, "k")
        assert result.exit_code == 0, result.stderr
        assert message in result.stdout
        assert state(connection, "k") == expected
        assert audited(connection, f"schedule.{verb}") == 1


def test_a_change_without_effect_is_no_error(sereno: Command) -> None:
    add(sereno, "k", "--every", "1h")
    result = sereno("schedule", "resume", "k")
    assert result.exit_code == 0
    assert "It is enabled: there is nothing to resume." in result.stderr
    assert sereno("schedule", "resume", "k", "--fail-empty").exit_code == 7


@pytest.mark.slow
def test_a_change_by_a_filter_needs_yes(
    sereno: Command, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for key in ("a1", "a2"):
        add(sereno, key, "--every", "1h", "--tenant", "r1")
    for words, count in ((["a*"], 2), (["--tenant", "r1"], 2), (["--task", "work"], 2), (["a1", "--tenant", "r1"], 1)):
        with subtests.test(words=words):
            if words[0] != "a1":
                refused = sereno("schedule", "pause", *words)
                assert refused.exit_code == 8
                assert "--dry-run" in refused.stderr
                assert "--yes" in refused.stderr
                assert state(connection, "a1") == "enabled"
            done = sereno("schedule", "pause", *words, "--yes", "-o", "json")
            assert json.loads(done.stdout) == {"changed": count}
            assert state(connection, "a1") == "paused"
            sereno("schedule", "resume", "*", "--yes")


def test_a_key_of_another_tenant_does_not_match(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "a1", "--every", "1h", "--tenant", "r1")
    assert "No schedule matched" in sereno("schedule", "delete", "a1", "--tenant", "r2").stdout
    assert state(connection, "a1") == "enabled"


def test_a_change_without_a_key_or_filter_is_a_usage_error(
    sereno: Command, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    add(sereno, "k", "--every", "1h")
    for verb in ("pause", "resume", "disable", "delete", "spread"):
        with subtests.test(verb=verb):
            rest = ["--yes", *(["--over", "1m"] if verb == "spread" else [])]
            result = sereno("schedule", verb, *rest)
            assert result.exit_code == 2
            assert "Name a key or a pattern" in result.stderr
            assert sereno("schedule", verb, "x*", *rest).exit_code == 0
            assert state(connection, "k") == "enabled"


def test_a_dry_run_counts_by_state_and_task_and_does_nothing(sereno: Command, connection: psycopg.Connection) -> None:
    for key in ("a1", "a2", "a3"):
        add(sereno, key, "--every", "1h")
    sereno("schedule", "pause", "a1")
    sereno("schedule", "disable", "a2")
    before = connection.execute("select key, state, changed_at from sereno.schedules order by key").fetchall()
    text = sereno("schedule", "delete", "a*", "--dry-run").stdout
    assert "Would delete 3 schedules." in text
    assert "by state: paused 1, disabled 1, enabled 1" in text
    assert "by task: work 3" in text
    for verb, count in (("pause", 2), ("resume", 2), ("disable", 2), ("delete", 3)):
        tally = json.loads(sereno("schedule", verb, "a*", "--dry-run", "-o", "json").stdout)
        assert tally["total"] == {"value": count, "exact": True}, verb
        assert tally["by_task"] == {"work": count}
    assert connection.execute("select key, state, changed_at from sereno.schedules order by key").fetchall() == before
    assert "there is nothing to pause" in sereno("schedule", "pause", "x*", "--dry-run").stdout
    assert sereno("schedule", "pause", "x*", "--dry-run", "--fail-empty").exit_code == 7


@pytest.mark.slow
def test_a_bulk_change_is_made_in_batches(sereno: Command, connection: psycopg.Connection) -> None:
    connection.execute(
        "select sereno.schedule('k' || n, 'work', every => interval '1 hour') from generate_series(1, 2500) as n"
    )
    assert "Paused: 2,500 schedules." in sereno("schedule", "pause", "*", "--yes").stdout
    assert audited(connection, "schedule.pause") == 3
    assert one(connection, "select count(*) from sereno.schedules where state = 'paused'") == 2500
    assert "Deleted: 2,500 schedules." in sereno("schedule", "delete", "k*", "--yes").stdout


def test_a_bulk_change_is_confirmed_on_a_terminal(
    sereno: Command, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(sereno, "a1", "--every", "1h")
    monkeypatch.setattr(schedule_options, "is_interactive", lambda: True)
    replies = iter([False, True])
    monkeypatch.setattr(click, "confirm", lambda *_, **__: next(replies))
    declined = sereno("schedule", "pause", "a*")
    assert declined.exit_code == 8
    assert "Would pause 1 schedule." in declined.stderr
    assert state(connection, "a1") == "enabled"
    assert sereno("schedule", "pause", "a*").exit_code == 0
    assert state(connection, "a1") == "paused"
    # There is no third reply: a filter that matches nothing is not confirmed.
    nothing = sereno("schedule", "pause", "nope:*")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "No schedule matched: nothing was changed.\n", "")
    assert sereno("schedule", "pause", "nope:*", "--fail-empty").exit_code == 7


def test_pause_until_a_date(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--every", "1h")
    result = sereno("schedule", "pause", "k", "--until", "2090-01-08T00:00+00:00", "--note", "holidays")
    here = datetime(2090, 1, 8, tzinfo=UTC).astimezone()
    assert f"Paused: 1 schedule, until {here:%a %Y-%m-%d %H:%M %Z}." in result.stdout
    row = shown(sereno, "k")["schedule"]
    assert (row["state"], row["paused_until"], row["note"]) == ("enabled", "2090-01-08T00:00:00Z", "holidays")
    assert "until 2090-01-08: holidays" in sereno("schedule", "list", "-o", "table").stdout
    assert sereno("schedule", "resume", "k").exit_code == 0
    assert shown(sereno, "k")["schedule"]["paused_until"] is None
    assert sereno("schedule", "pause", "k", "--until", "soon").exit_code == 2
    assert sereno("schedule", "pause", "k", "--note", "").exit_code == 2


def test_pause_until_a_time_with_an_offset_and_seconds(sereno: Command) -> None:
    add(sereno, "k", "--every", "1h")
    result = sereno("schedule", "pause", "k", "--until", "2090-01-08T00:00:30-03:00")
    assert shown(sereno, "k")["schedule"]["paused_until"] == "2090-01-08T03:00:30Z"
    here = datetime(2090, 1, 8, 3, 0, 30, tzinfo=UTC).astimezone()
    assert f"until {here:%a %Y-%m-%d %H:%M:%S %Z}." in result.stdout
    assert "2027-01-08T00:00-03:00" in "".join(sereno("schedule", "pause", "--help").stdout.split())


def test_resume_warns_that_an_invalid_rule_is_parked_again(sereno: Command, connection: psycopg.Connection) -> None:
    warning = 'an invalid rule is parked again; change it with "sereno schedule add".'
    for key in ("a1", "a2", "a3"):
        add(sereno, key, "--every", "1h")
    connection.execute("update sereno.schedules set state = 'parked', next_run_at = null where key <> 'a3'")
    result = sereno("schedule", "resume", "a1")
    assert result.stdout == "Resumed: 1 schedule.\n"
    assert result.stderr == f"It was parked: {warning}\n"
    assert f"1 of them was parked: {warning}" in sereno("schedule", "resume", "a*", "--yes").stderr
    sereno("schedule", "pause", "a*", "--yes")
    assert sereno("schedule", "resume", "a*", "--yes").stderr == ""


def test_a_resumed_schedule_has_no_next_run_until_it_is_planned(sereno: Command) -> None:
    add(sereno, "k", "--every", "1h")
    sereno("schedule", "pause", "k")
    sereno("schedule", "resume", "k")
    assert shown(sereno, "k")["schedule"]["next_run_at"] is None
    header, line = (text.split("\t") for text in sereno("schedule", "list").stdout.splitlines())
    assert dict(zip(header, line, strict=True))["next_run_at"] == ""
    assert "is being planned" in sereno("schedule", "list", "-o", "table").stdout
    sereno("schedule", "tick")
    assert shown(sereno, "k")["schedule"]["next_run_at"] is not None


def test_spread_shifts_schedules_within_its_window(sereno: Command, connection: psycopg.Connection) -> None:
    for number in range(3):
        add(sereno, f"a{number}", "--daily", "03:00")
    add(sereno, "a-once", "--at", "2090-01-01")
    dry = sereno("schedule", "spread", "a*", "--over", "20m", "--dry-run").stdout
    assert "Would spread 3 schedules over 20 m." in dry
    assert sereno("schedule", "spread", "a*", "--over", "20m").exit_code == 8
    assert "Spread: 3 schedules over 20 m." in sereno("schedule", "spread", "a*", "--over", "20m", "--yes").stdout
    sereno("schedule", "tick")
    rows = connection.execute(
        "select shift, next_run_at from sereno.schedules where rule ->> 'kind' = 'daily'"
    ).fetchall()
    assert len({shift for shift, _ in rows}) == 3
    assert all(0 <= shift < 1200 * 10**6 for shift, _ in rows)
    assert ": removed" in sereno("schedule", "spread", "a*", "--over", "0", "--yes").stdout
    assert one(connection, "select sum(shift) from sereno.schedules") == 0
    for wrong in ("soon", "500d", "-1"):
        assert sereno("schedule", "spread", "a*", "--over", wrong, "--yes").exit_code == 2


# Fire


def today(connection: psycopg.Connection) -> Any:
    """Return the date of the database. Tests read it before and after, because it may change in between."""
    return one(connection, "select to_char(sereno.now() at time zone 'UTC', 'YYYY-MM-DD')")


def test_run_prints_the_id_of_the_job(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--daily", "03:00", "--unique-key", "{key}", "--args", '{"on": "{date}"}')
    before = today(connection)
    first = sereno("schedule", "run", "k")
    job_id = int(first.stdout)
    days = [before, today(connection)]
    assert one(connection, "select args ->> 'on' from sereno.jobs where id = %s", job_id) in days
    again = sereno("schedule", "run", "k")
    assert int(again.stdout) == job_id
    assert "already" in again.stderr
    assert json.loads(sereno("schedule", "run", "k", "-o", "json").stdout)["created"] is False
    assert audited(connection, "schedule.run") == 3


def test_run_uses_the_current_time_whatever_the_spread_is(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "menu:42", "--daily", "03:00", "--spread", "30d", "--args", '{"on": "{date}"}')
    before = today(connection)
    sereno("schedule", "run", "menu:42")
    assert one(connection, "select args ->> 'on' from sereno.jobs") in [before, today(connection)]


def test_tick_fires_due_schedules_and_ends(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--every", "1h", "--overlap", "allow")
    add(sereno, "late", "--every", "1h", "--max-lateness", "1s", "--overlap", "allow")
    # This schedule is always due again, and the pass has to end nevertheless.
    add(sereno, "rhythm", "--every", "1ms", "--overlap", "allow")
    assert json.loads(sereno("schedule", "tick", "-o", "json").stdout)["fires"] == 1
    sereno("schedule", "delete", "rhythm")
    advance(connection, 3700)
    assert "1 fire, 1 skipped, 0 parked." in sereno("schedule", "tick").stdout
    assert "0 fires, 0 skipped, 0 parked." in sereno("schedule", "tick").stdout


@pytest.mark.slow
def test_tick_fires_more_schedules_than_one_pass_takes(sereno: Command, connection: psycopg.Connection) -> None:
    connection.execute(
        "select sereno.schedule('k' || n, 'work', cron => '0 * * * *') from generate_series(1, 4500) as n"
    )
    sereno("schedule", "tick")
    advance(connection, 3600)
    assert json.loads(sereno("schedule", "tick", "-o", "json").stdout)["fires"] == 4500


def test_tick_parks_a_schedule_whose_job_cannot_be_written(sereno: Command, connection: psycopg.Connection) -> None:
    for key in ("a", "b", "c"):
        add(sereno, key, "--every", "1h")
    connection.execute("alter table sereno.jobs add constraint no_b check (args ->> 'key' is distinct from 'b')")
    connection.execute("""update sereno.schedules set args = '{"key": "b"}' where key = 'b'""")
    advance(connection, 3700)
    done = json.loads(sereno("schedule", "tick", "-o", "json").stdout)
    assert done["fires"] == 2
    assert [parked["key"] for parked in done["parked"]] == ["b"]
    assert "no_b" in done["parked"][0]["why"]
    assert state(connection, "b") == "parked"


def test_tick_parks_a_schedule_that_cannot_be_read(sereno: Command, connection: psycopg.Connection) -> None:
    for key in ("a", "b", "c"):
        add(sereno, key, "--every", "1h")
    connection.execute("update sereno.schedules set missed_window = 'infinity' where key = 'b'")
    advance(connection, 3700)
    done = json.loads(sereno("schedule", "tick", "-o", "json").stdout)
    assert done["fires"] == 2
    assert [parked["key"] for parked in done["parked"]] == ["b"]
    assert state(connection, "b") == "parked"


def test_tick_without_the_schema_exits_with_5(sereno: Command, empty_database_url: str) -> None:
    result = sereno("schedule", "tick", SERENO_DATABASE_URL=empty_database_url)
    assert result.exit_code == 5
    assert "sereno migrate" in result.stderr


def test_tick_records_ended_runs(sereno: Command, manual: ManualWorker, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--every", "1h", "--count-from", "end")
    connection.execute("update sereno.schedules set task = 'greet'")
    advance(connection, 3700)
    sereno("schedule", "tick")
    assert one(connection, "select next_run_at from sereno.schedules") is None
    assert "it is planned when the current run ends" in sereno("schedule", "next", "k").stdout
    session = manual.worker()
    (job,) = manual.claim(session)
    manual.settle(session, job, Settlement("succeeded"))
    done = json.loads(sereno("schedule", "tick", "-o", "json").stdout)
    assert done["runs_ended"] == 1
    row = shown(sereno, "k")["schedule"]
    assert (row["succeeded"], row["last_state"]) == (1, "succeeded")
    assert row["next_run_at"] is not None
    assert "succeeded " in sereno("schedule", "list", "-o", "table").stdout


# Backfill


def test_backfill_lists_instants_and_creates_each_job_once(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "k", "--daily", "03:00", "--tz", "Europe/Riga", "--args", '{"on": "{date}"}')
    words = ["schedule", "backfill", "k", "2026-01-01", "2026-01-04"]
    dry = sereno(*words, "--rate", "1/s", "--dry-run").stdout
    assert "k   every day at 03:00, Europe/Riga   work" in dry
    assert "Thu 2026-01-01 03:00:00 EET" in dry
    assert "3 instants, 0 of them done before: 3 jobs to create, 3 s at 1/s." in dry
    assert one(connection, "select count(*) from sereno.jobs") == 0
    refused = sereno(*words)
    assert refused.exit_code == 8
    assert "3 jobs" in refused.stderr
    assert "Created 3 jobs." in sereno(*words, "--yes").stdout
    made = connection.execute("select args ->> 'on', planned_at from sereno.jobs order by id").fetchall()
    assert [on for on, _ in made] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert made[0][1] == datetime(2026, 1, 1, 1, tzinfo=UTC)
    again = json.loads(
        sereno("schedule", "backfill", "k", "2026-01-01", "2026-01-05", "--dry-run", "-o", "json").stdout
    )
    assert again["to_make"] == 1
    assert [each["done"] for each in again["instants"]] == [True, True, True, False]
    assert "done before" in sereno(*words, "--dry-run").stdout
    assert json.loads(sereno(*words, "-o", "json").stdout)["jobs"] == []
    nothing = sereno(*words)
    assert nothing.exit_code == 0
    assert nothing.stdout.endswith("3 instants, 3 of them done before. Nothing to create.\n")
    assert nothing.stderr == ""
    assert audited(connection, "schedule.backfill") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("takes", "waits"), [(20, 0), (600, 2)])
def test_backfill_keeps_its_rate_across_batches(
    sereno: Command, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, takes: float, waits: int
) -> None:
    """A batch has jobs for 50 s: a faster one leaves no gap, and the delay of a slower one is not caught up."""
    monkeypatch.setattr(schedules, "batches", partial(slow_batches, connection, takes, schedules.batches))
    add(sereno, "k", "--cron", "* * * * *", "--expires-after", "5s")
    result = sereno("schedule", "backfill", "k", "2026-01-01T00:00", "2026-01-01T19:59", "--rate", "10/s", "--yes")
    assert "… and 1,180 more" in result.stdout
    assert "Created 1,200 jobs." in result.stdout
    moments = [at for (at,) in connection.execute("select run_at from sereno.jobs order by planned_at")]
    gaps = [round((later - earlier).total_seconds(), 3) for earlier, later in pairwise(moments)]
    assert min(gaps) == 0.1
    assert sum(gap > 0.1 for gap in gaps) == waits
    assert one(connection, "select count(*) from sereno.jobs where expires_at < run_at") == 0


def slow_batches(
    connection: psycopg.Connection, takes: float, batches: Callable[..., Iterator[Any]], instants: list[datetime]
) -> Iterator[Any]:
    """Return the batches of a backfill, each of which takes the given number of seconds."""
    for batch in batches(instants):
        yield batch
        advance(connection, takes)


def test_backfill_counts_instants_whose_unique_key_exists(sereno: Command) -> None:
    add(sereno, "k", "--daily", "03:00", "--unique-key", "{key}:{fire:%Y-%m}", "--unique-for", "forever")
    result = sereno("schedule", "backfill", "k", "2026-01-01", "2026-03-01", "--yes")
    assert "Created 2 jobs." in result.stdout
    assert "59 instants, 0 of them done before: at most 59 jobs to create." in result.stdout
    assert "57 instants created no job: a job with their unique key exists." in result.stderr
    refused = sereno("schedule", "backfill", "k", "2026-03-02", "2026-04-01")
    assert "this would create at most 30 jobs" in refused.stderr


REFUSED_BACKFILLS = [
    (
        ["--daily", "03:00", "--tz", "Europe/Riga"],
        ["2026-01-02", "2026-01-01"],
        2,
        "TO (2026-01-01, Europe/Riga) is not after FROM (2026-01-02): swap them",
    ),
    (["--daily", "03:00"], ["1d", "2d"], 2, "TO (2d) is not after FROM (1d): swap them"),
    (
        ["--daily", "03:00"],
        ["2026-01-02", "2026-01-02"],
        2,
        "TO (2026-01-02, UTC) is not after FROM (2026-01-02): the range is empty",
    ),
    (
        ["--daily", "03:00"],
        ["2026-01-02", "2090-01-01T00:00Z"],
        2,
        'TO (2090-01-01T00:00Z) is in the future: the schedule will fire it; "0s" as TO means until now',
    ),
    (["--daily", "03:00"], ["yesterday", "now"], 2, "FROM 'yesterday'"),
    (["--every", "1h"], ["2d", "1d"], 8, "has no instants in the past"),
    (["--cron", "* * * * * *"], ["30d", "1d"], 8, "more than 100,000 instants"),
    (["--daily", "03:00"], ["2026-01-01T04:00", "2026-01-01T05:00"], 0, ""),
]


@pytest.mark.slow
def test_invalid_backfills_are_refused(
    sereno: Command, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for number, (rule, span, code, message) in enumerate(REFUSED_BACKFILLS):
        with subtests.test(rule=rule, span=span):
            add(sereno, f"k{number}", *rule)
            result = sereno("schedule", "backfill", f"k{number}", *span, "--yes")
            assert result.exit_code == code, result.stderr
            assert message in result.stderr
            assert one(connection, "select count(*) from sereno.jobs") == 0
