"""`sereno schedule add` and `preview`: stored schedules, previews and refusals."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Command
from tests.cli.schedules.schedule_steps import APPLICATION, add, shown
from tests.facts import one

# Write


RULES: list[tuple[list[str], dict[str, Any], str]] = [
    (
        ["--daily", "03:00", "--tz", "Europe/Riga"],
        {"kind": "daily", "at": "03:00"},
        "every day at 03:00, Europe/Riga",
    ),
    (["--cron", "30 9 * * mon-fri"], {"expression": "30 9 * * MON-FRI"}, "at 09:30 on Monday through Friday, UTC"),
    (["--every", "5m"], {"interval": 300}, "every 5 minutes"),
    (
        ["--every", "15m", "--count-from", "clock", "--phase", "1m"],
        {"phase": 60, "count_from": "clock"},
        "every 15 minutes (aligned to the clock, 1 m past it)",
    ),
    (
        ["--at", "2090-12-24T18:00", "--tz", "Europe/Riga"],
        {"at": "2090-12-24T16:00:00Z"},
        "once at 2090-12-24 16:00 UTC",
    ),
    (["--at", "2090-12-24T18:00"], {"at": "2090-12-24T18:00:00Z"}, "once at 2090-12-24 18:00 UTC"),
]


@pytest.mark.slow
def test_add_accepts_every_kind_of_rule(sereno: Command, subtests: pytest.Subtests) -> None:
    for words, rule, description in RULES:
        with subtests.test(words=words):
            made = add(sereno, description, *words)
            assert (made["what"], made["when"]) == ("created", description)
            assert rule.items() <= shown(sereno, description)["schedule"]["rule"].items()


def test_add_stores_every_option(sereno: Command) -> None:
    words = (
        "--args",
        '{"account": "r42"}',
        "--daily",
        "03:00",
        "--tz",
        "Europe/Riga",
        "--spread",
        "20m",
        "--dst-fold",
        "second",
        "--tenant",
        "r42",
        "--queue",
        "mail",
        "--priority",
        "1",
        "--tag",
        "a",
        "--unique-key",
        "{key}:{fire:%Y-%m}",
        "--unique-for",
        "forever",
        "--missed",
        "all",
        "--missed-limit",
        "7",
        "--missed-window",
        "2h",
        "--overlap",
        "allow",
        "--max-lateness",
        "1h",
        "--expires-after",
        "1d",
        "--starts",
        "2090-01-01",
        "--ends",
        "2091-01-01T12:00+00:00",
        "--max-fires",
        "9",
        "--disable-after",
        "3",
    )
    add(sereno, "k", *words)
    row = shown(sereno, "k")["schedule"]
    expected = {
        "task": "work",
        "args": {"account": "r42"},
        "tenant": "r42",
        "queue": "mail",
        "priority": 1,
        "tags": ["a"],
        "unique_key": "{key}:{fire:%Y-%m}",
        "unique_forever": True,
        "missed": "all",
        "missed_limit": 7,
        "missed_window": 7200,
        "overlap": "allow",
        "max_lateness": 3600,
        "expires_after": 86400,
        "starts_at": "2089-12-31T22:00:00Z",
        "ends_at": "2091-01-01T12:00:00Z",
        "max_fires": 9,
        "disable_after": 3,
    }
    assert {name: row[name] for name in expected} == expected
    assert row["rule"]["spread"] == 1200
    assert row["rule"]["dst_fold"] == "second"


def test_add_prints_the_next_run_and_whether_the_schedule_changed(
    sereno: Command, connection: psycopg.Connection
) -> None:
    words = ["schedule", "add", "k", "--task", "work", "--unchecked", "--daily", "03:00", "--tz", "America/Sao_Paulo"]
    first = sereno(*words).stdout
    assert "Created: k, every day at 03:00, America/Sao_Paulo." in first
    assert " 03:00:00 -03, in " in first
    assert "Unchanged: k" in sereno(*words).stdout
    assert "Changed: k" in sereno(*words, "--tenant", "r1").stdout
    assert one(connection, "select count(*) from sereno.audit where action = 'schedule.write'") == 2


def test_add_checks_the_job_with_the_application(sereno: Command, tmp_path: Path) -> None:
    (tmp_path / "menus.py").write_text(APPLICATION)
    words = ["schedule", "add", "k", "--task", "refresh_menu", "--daily", "03:00"]
    app = ["-a", "menus.py"]
    assert sereno(*words, "--args", '{"store": 42}', *app).exit_code == 0
    assert (shown(sereno, "k")["schedule"]["queue"], shown(sereno, "k")["schedule"]["priority"]) == ("menus", 2)
    assert sereno(*words, "--args", '{"store": "x"}', *app).exit_code == 2
    assert "it takes (store, note)" in sereno(*words, *app).stderr
    unknown = sereno("schedule", "add", "k", "--task", "unknown", "--daily", "03:00", *app)
    assert unknown.exit_code == 3
    assert "refresh_menu" in unknown.stderr
    without = sereno(*words)
    assert without.exit_code == 3
    assert "SERENO_APP" in without.stderr
    assert "--unchecked" in without.stderr


REFUSED = [
    ([], "exactly one of --cron, --every, --daily and --at"),
    (["--daily", "03:00", "--every", "5m"], "exactly one of"),
    (["--daily", "25:00"], "--daily '25:00' is not a time of day: hour 25 is out of range"),
    (["--cron", "61 * * * *"], "minute 61 is out of range"),
    (["--every", "soon"], '--every: "soon" is not a duration'),
    (["--every", "5m", "--phase", "1m"], "--phase shifts the times on the clock: it needs --count-from clock"),
    (["--daily", "03:00", "--spread", "500d"], "--spread '500d' is out of range"),
    (["--daily", "03:00", "--tz", "Europe/Rga"], "Europe/Riga"),
    (["--daily", "03:00", "--phase", "1m"], "--phase needs --every"),
    (["--at", "2090-01-01", "--spread", "1h"], "--spread has no effect"),
    (["--at", "yesterday"], "--at 'yesterday'"),
    (["--at", "2020-01-01"], "all past"),
    (["--daily", "03:00", "--starts", "later"], "--starts 'later'"),
    (["--daily", "03:00", "--missed", "all"], 'overlap="allow"'),
    (["--daily", "03:00", "--args", "[1]"], "one JSON object"),
    (["--daily", "03:00", "--args", "{"], "one JSON object"),
    (["--daily", "03:00", "--args", '{"a": ' + "[" * 5000 + "]" * 5000 + "}"], "nested"),
    (["--daily", "03:00", "--args", '{"a": "\\u0000"}'], "NUL"),
    (["--daily", "03:00", "--args", '{"a": "{fire:%1000000d}"}'], "%1 is not a known directive"),
    (["--daily", "03:00", "--unique-for", "1h"], "need a unique_key"),
    (["--daily", "03:00", "--tenant", ""], "tenant ''"),
    (["--every", "1e400s"], "not a duration"),
    (["--daily", "03:00", "--max-fires", "99999999999999999999"], "out of range"),
]


@pytest.mark.slow
def test_add_refuses_invalid_options_and_writes_nothing(
    sereno: Command, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for words, message in REFUSED:
        with subtests.test(message=message):
            result = sereno("schedule", "add", "k", "--task", "work", "--unchecked", *words)
            assert result.exit_code == 2, result.stderr
            assert message in result.stderr
            assert "Traceback" not in result.stderr
            assert one(connection, "select count(*) from sereno.schedules") == 0


def test_invalid_schedule_keys_are_refused(sereno: Command, subtests: pytest.Subtests) -> None:
    rest = {"add": ["--task", "work", "--unchecked", "--daily", "03:00"], "backfill": ["2d", "1d"]}
    for key in ("", "k" * 501, "a\x00b", "a\udcffb"):
        with subtests.test(key=ascii(key)):
            for verb in ("add", "show", "next", "run", "list", "pause", "export", "backfill"):
                result = sereno("schedule", verb, key, *rest.get(verb, []))
                assert result.exit_code == 2, (verb, result.stderr)
                assert "key" in result.stderr


# Preview


def test_preview_needs_no_database(sereno: Command) -> None:
    done = sereno("schedule", "preview", "30 9 * * MON-FRI", "--tz", "Europe/Riga", "-n", "2", SERENO_DATABASE_URL="")
    assert done.exit_code == 0, done.stderr
    title, *lines = done.stdout.splitlines()
    assert title == "at 09:30 on Monday through Friday, Europe/Riga"
    assert len(lines) == 2
    assert all(" 09:30:00 EE" in line for line in lines)


def test_preview_notes_a_change_of_the_clock(sereno: Command) -> None:
    words = ["schedule", "preview", "--daily", "03:30", "--tz", "Europe/Riga", "-n", "1"]
    forward = sereno(*words, "--after", "2090-03-25T12:00").stdout
    assert "Sun 2090-03-26 04:00:00 EEST" in forward
    assert "03:30 does not exist on this day: runs at 04:00" in forward
    back = json.loads(sereno(*words, "--after", "2090-10-28T12:00", "-o", "json").stdout)
    assert "comes twice, runs on the first pass" in back["upcoming"][0]["note"]


def test_preview_shows_the_position_in_the_spread(sereno: Command) -> None:
    words = ["schedule", "preview", "--daily", "06:00", "--spread", "20m", "-n", "1"]
    assert "menu:42   every day at 06:00, UTC (spread +14m59s)" in sereno(*words, "--key", "menu:42").stdout
    assert "06:14:59 UTC" in sereno(*words, "--key", "menu:42").stdout
    assert "spread over 20 m" in sereno(*words).stdout


def test_preview_of_one_instant_is_in_the_given_zone(sereno: Command) -> None:
    words = ["schedule", "preview", "--at", "2090-01-01T03:00", "--tz", "Europe/Riga"]
    title, line = sereno(*words).stdout.splitlines()
    assert title == "once at 2090-01-01 01:00 UTC"
    assert line.startswith("  Sun 2090-01-01 03:00:00 EET   in ")
    (found,) = json.loads(sereno(*words, "-o", "json").stdout)["upcoming"]
    assert (found["at"], found["local"]) == ("2090-01-01T01:00:00Z", "2090-01-01T03:00:00+02:00")
    added = sereno("schedule", "add", "k", "--task", "work", "--unchecked", *words[2:])
    assert "Next: Sun 2090-01-01 03:00:00 EET, in " in added.stdout


def test_preview_distinguishes_milliseconds(sereno: Command) -> None:
    lines = sereno("schedule", "preview", "--every", "1ms", "-n", "3").stdout.splitlines()
    assert len(set(lines)) == 4


def test_preview_refuses_invalid_rules(sereno: Command) -> None:
    for words, message in (
        (["* * *"], "is not a cron expression"),
        (["0 0 30 2 *"], "never"),
        ([], "exactly one of"),
        (["* * * * *", "--cron", "* * * * *"], "twice"),
        (["* * * * *", "--daily", "03:00"], "exactly one of"),
    ):
        result = sereno("schedule", "preview", *words)
        assert result.exit_code == 2, words
        assert message in result.stderr
    past = sereno("schedule", "preview", "--at", "2020-01-01")
    assert "No next run." in past.stdout
