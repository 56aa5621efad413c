"""Schedules on the command line: what a person sees of them, and how one is written."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import PROGRAM, Command, Process, process_environment
from tests.cli.test_front_door import SLOW
from tests.facts import advance, one

APPLICATION = """
from sereno import Sereno
app = Sereno()

@app.task(queue="menus", priority=2)
def refresh_menu(store: int, note: str = "") -> None: ...
"""


def add(sereno: Command, key: str, *words: str) -> dict[str, Any]:
    result = sereno("schedule", "add", key, "--task", "work", "--unchecked", "-o", "json", *words)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def shown(sereno: Command, key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sereno("schedule", "show", key, "-o", "json").stdout)
    return found


def screen(words: list[str], database_url: str, directory: Path, columns: int = 100) -> str:
    """What a terminal of this width shows, without the dim of the headings."""
    ours, theirs = pty.openpty()
    environment = process_environment(
        SERENO_DATABASE_URL=database_url, TERM="xterm", COLUMNS=str(columns), NO_COLOR="1"
    )
    subprocess.run([sys.executable, "-c", PROGRAM, *words], check=True, cwd=directory, env=environment, stdout=theirs)
    text = os.read(ours, 100_000).decode().replace("\x1b[2m", "").replace("\x1b[0m", "")
    os.close(ours)
    os.close(theirs)
    return text


# Write


@pytest.mark.parametrize(
    ("words", "rule", "spoken"),
    [
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
    ],
)
def test_add_by_every_kind_of_rule(sereno: Command, words: list[str], rule: dict[str, Any], spoken: str) -> None:
    made = add(sereno, "k", *words)
    assert (made["what"], made["when"]) == ("created", spoken)
    assert rule.items() <= shown(sereno, "k")["schedule"]["rule"].items()


def test_add_takes_every_option(sereno: Command) -> None:
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


def test_add_says_when_it_runs_next_and_whether_it_was_there(sereno: Command, connection: psycopg.Connection) -> None:
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
    unknown = sereno("schedule", "add", "k", "--task", "unheard", "--daily", "03:00", *app)
    assert unknown.exit_code == 3
    assert "refresh_menu" in unknown.stderr
    without = sereno(*words)
    assert without.exit_code == 3
    assert "SERENO_APP" in without.stderr
    assert "--unchecked" in without.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "exactly one of --cron, --every, --daily and --at"),
        (["--daily", "03:00", "--every", "5m"], "exactly one of"),
        (["--daily", "25:00"], "--daily '25:00' is not a time of day: hour 25 is out of range"),
        (["--cron", "61 * * * *"], "minute 61 is out of range"),
        (["--every", "soon"], '--every: "soon" is not a duration'),
        (["--every", "5m", "--phase", "1m"], "--phase shifts the marks of a clock: it needs --count-from clock"),
        (["--daily", "03:00", "--spread", "500d"], "--spread '500d' is out of range"),
        (["--daily", "03:00", "--tz", "Europe/Rga"], "Europe/Riga"),
        (["--daily", "03:00", "--phase", "1m"], "--phase belongs to --every"),
        (["--at", "2090-01-01", "--spread", "1h"], "--spread does nothing"),
        (["--at", "yesterday"], "--at 'yesterday'"),
        (["--at", "2020-01-01"], "all past"),
        (["--daily", "03:00", "--starts", "later"], "--starts 'later'"),
        (["--daily", "03:00", "--missed", "all"], 'overlap="allow"'),
        (["--daily", "03:00", "--args", "[1]"], "one JSON object"),
        (["--daily", "03:00", "--args", "{"], "one JSON object"),
        (["--daily", "03:00", "--args", '{"a": ' + "[" * 5000 + "]" * 5000 + "}"], "nested"),
        (["--daily", "03:00", "--args", '{"a": "\\u0000"}'], "NUL"),
        (["--daily", "03:00", "--args", '{"a": "{fire:%1000000d}"}'], "%1 is not known here"),
        (["--daily", "03:00", "--unique-for", "1h"], "need a unique_key"),
        (["--daily", "03:00", "--tenant", ""], "tenant ''"),
        (["--every", "1e400s"], "not a duration"),
        (["--daily", "03:00", "--max-fires", "99999999999999999999"], "out of range"),
    ],
)
def test_add_refuses_kindly_and_writes_nothing(
    sereno: Command, connection: psycopg.Connection, words: list[str], said: str
) -> None:
    result = sereno("schedule", "add", "k", "--task", "work", "--unchecked", *words)
    assert result.exit_code == 2, result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert one(connection, "select count(*) from sereno.schedules") == 0


@pytest.mark.parametrize("key", ["", "k" * 501, "a\x00b", "a\udcffb"])
def test_a_key_that_cannot_be_one(sereno: Command, key: str) -> None:
    rest = {"add": ["--task", "work", "--unchecked", "--daily", "03:00"], "backfill": ["2d", "1d"]}
    for verb in ("add", "show", "next", "run", "list", "pause", "export", "backfill"):
        result = sereno("schedule", verb, key, *rest.get(verb, []))
        assert result.exit_code == 2, (verb, result.stderr)
        assert "key" in result.stderr


# Look


def test_list_in_a_pipe_has_plain_values(process: Process, sereno: Command) -> None:
    add(sereno, "menu:42", "--daily", "03:00", "--tz", "Europe/Riga", "--tenant", "r42")
    done = process("schedule", "list")
    header, line = (text.split("\t") for text in done.stdout.splitlines())
    cells = dict(zip(header, line, strict=True))
    assert cells["key"] == "menu:42"
    assert cells["when"] == "every day at 03:00, Europe/Riga"
    assert cells["next_run_at"].endswith(":00:00Z")
    assert (cells["tenant"], cells["state"], cells["fired"]) == ("r42", "enabled", "0")


def test_list_as_json_pages_and_filters(sereno: Command) -> None:
    for key in ("a", "b:1", "b:2", "b_3"):
        add(sereno, key, "--every", "1h", "--tenant", key[0])
    page = json.loads(sereno("schedule", "list", "-n", "3", "-o", "json").stdout)
    assert [item["key"] for item in page["items"]] == ["a", "b:1", "b:2"]
    assert page["items"][0]["when"] == "every hour"
    rest = json.loads(sereno("schedule", "list", "--after", page["next"], "-o", "json").stdout)
    assert ([item["key"] for item in rest["items"]], rest["next"]) == (["b_3"], None)

    def keys(*words: str) -> list[str]:
        return [
            json.loads(line)["key"] for line in sereno("schedule", "list", "-o", "jsonl", *words).stdout.splitlines()
        ]

    assert keys("b:*") == ["b:1", "b:2"]
    # Only * is special.
    assert keys("b_*") == ["b_3"]
    assert keys("%") == []
    assert keys("b:1") == ["b:1"]
    assert keys("--tenant", "a") == ["a"]
    assert keys("--task", "other") == []
    assert keys("--state", "paused") == []
    assert len(keys("--state", "paused", "--state", "enabled")) == 4


def test_list_of_nothing(sereno: Command) -> None:
    empty = sereno("schedule", "list", "-o", "table")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "No schedule matches." in empty.stderr
    assert sereno("schedule", "list", "--fail-empty").exit_code == 7
    assert json.loads(sereno("schedule", "list", "-o", "json").stdout) == {"items": [], "next": None}


def test_list_soonest_first(sereno: Command) -> None:
    add(sereno, "a", "--every", "2h")
    add(sereno, "b", "--every", "1h")
    items = json.loads(sereno("schedule", "list", "--soonest", "-o", "json").stdout)["items"]
    assert [item["key"] for item in items] == ["b", "a"]
    assert sereno("schedule", "list", "--soonest", "--after", "a").exit_code == 2


def test_list_fits_a_terminal_of_100_columns(sereno: Command, database_url: str, tmp_path: Path) -> None:
    add(sereno, "reconcile:r42", "--cron", "0 8 * * MON#2", "--tz", "Asia/Kolkata", "--tenant", "r42")
    add(sereno, "sweep", "--every", "5s")
    sereno("schedule", "pause", "sweep", "--note", "closed for the holidays, and for a long time after them too")
    text = screen(["schedule", "list"], database_url, tmp_path)
    assert max(map(len, text.splitlines())) <= 100
    for words in ("reconcile:r42", "08:00 IST, in ", "closed for the holidays", "paused", "at 08:00 on the second Mon"):
        assert words in text
    wide = screen(["schedule", "list"], database_url, tmp_path, 200)
    assert "at 08:00 on the second Monday of the month, Asia/Kolkata" in wide
    assert "r42 " in wide


def test_a_key_cannot_talk_to_the_terminal(sereno: Command, database_url: str, tmp_path: Path) -> None:
    key = "\x1b[31mred\x07\nnext"
    add(sereno, key, "--every", "1h")
    for words in (["schedule", "list"], ["schedule", "show", key], ["schedule", "next", key]):
        text = screen(words, database_url, tmp_path)
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "�[31mred� next" in text


def test_a_rule_that_makes_no_sense_is_shown_as_it_is(sereno: Command, connection: psycopg.Connection) -> None:
    connection.execute("select sereno.schedule('bad', 'work', cron => '61 * * * *')")
    for words in (["list"], ["show", "bad"], ["next", "bad"], ["export"]):
        result = sereno("schedule", *words)
        assert result.exit_code == 0, result.stderr
        assert "61 * * * *" in result.stdout
    assert "1 parked" in sereno("schedule", "tick").stdout
    page = sereno("schedule", "show", "bad").stdout
    assert "parked: " in page
    assert "minute 61 is out of range" in page


def test_show_for_people_and_for_programs(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "menu:42", "--daily", "06:00", "--tz", "Africa/Nairobi", "--spread", "20m", "--disable-after", "3")
    for _ in range(2):
        advance(connection, 86400)
        sereno("schedule", "tick")
    page = sereno("schedule", "show", "menu:42").stdout
    for words in (
        "menu:42",
        "every day at 06:00, Africa/Nairobi (spread +14m59s)",
        "queue default, priority 5",
        "latest: one run stands for all",
        "skip: an instant is skipped while",
        "after 3 failed runs in a row (0 now)",
        "fired 1,",
        "overlap 1",
        "skipped: the run before went on",
        "06:14:59 EAT",
    ):
        assert words in page
    detail = shown(sereno, "menu:42")
    assert detail["schedule"]["skipped"] == {"overlap": 1}
    assert [fire["reason"] for fire in detail["fires"]] == ["overlap", None]
    assert len(detail["upcoming"]) == 5
    assert detail["upcoming"][0]["local"].endswith("+03:00")
    assert "skipped: the run" not in sereno("schedule", "show", "menu:42", "-n", "0").stdout


def test_show_says_who_stopped_it_and_why(sereno: Command) -> None:
    add(sereno, "k", "--daily", "06:00")
    sereno("schedule", "pause", "k", "--note", "holidays")
    page = sereno("schedule", "show", "k").stdout
    assert "paused by " in page
    assert ": holidays" in page
    assert "Nothing is to come: it is paused by " in sereno("schedule", "next", "k").stdout


def test_next_is_in_the_schedules_own_zone(sereno: Command) -> None:
    add(sereno, "menu:42", "--daily", "06:00", "--tz", "America/Sao_Paulo")
    title, *lines = sereno("schedule", "next", "menu:42", "-n", "3").stdout.splitlines()
    assert title == "menu:42   every day at 06:00, America/Sao_Paulo   work"
    assert len(lines) == 3
    assert all(" 06:00:00 -03   in " in line for line in lines)
    found = json.loads(sereno("schedule", "next", "menu:42", "-o", "json").stdout)
    assert found["upcoming"][0]["zone"] == "-03"
    assert found["state"] == "enabled"


def test_next_of_a_pause_with_an_end_begins_there(sereno: Command) -> None:
    add(sereno, "k", "--daily", "06:00")
    sereno("schedule", "pause", "k", "--until", "2090-01-08T12:00+00:00")
    found = json.loads(sereno("schedule", "next", "k", "-o", "json").stdout)
    assert found["upcoming"][0]["at"] == "2090-01-09T06:00:00Z"


def test_next_of_one_that_is_overdue_shows_it_and_goes_on_from_now(
    sereno: Command, connection: psycopg.Connection
) -> None:
    add(sereno, "k", "--every", "1h")
    advance(connection, 10 * 3600)
    lines = sereno("schedule", "next", "k", "-n", "3").stdout.splitlines()
    assert "due for 9 h" in lines[1]
    assert [" in " in line for line in lines] == [False, False, True, True]


def test_next_ends_where_the_schedule_does(sereno: Command) -> None:
    add(sereno, "few", "--every", "1h", "--max-fires", "2")
    add(sereno, "end", "--every", "1h", "--count-from", "end")
    assert len(json.loads(sereno("schedule", "next", "few", "-o", "json").stdout)["upcoming"]) == 2
    assert len(json.loads(sereno("schedule", "next", "end", "-o", "json").stdout)["upcoming"]) == 1


def test_no_such_schedule(sereno: Command) -> None:
    for words in (
        ["show"],
        ["next"],
        ["run"],
        ["pause"],
        ["resume"],
        ["disable"],
        ["delete"],
        ["spread", "--over", "1m"],
    ):
        result = sereno("schedule", *words[:1], "nowhere", *words[1:])
        assert result.exit_code == 7, (words, result.stderr)
        assert "there is no schedule 'nowhere'" in result.stderr
    assert sereno("schedule", "backfill", "nowhere", "2d", "1d").exit_code == 7
    assert sereno("schedule", "pause", "nowhere", "--dry-run").exit_code == 7


# Preview


def test_preview_needs_no_database(process: Process) -> None:
    done = process("schedule", "preview", "30 9 * * MON-FRI", "--tz", "Europe/Riga", "-n", "2", SERENO_DATABASE_URL="")
    assert done.returncode == 0, done.stderr
    title, *lines = done.stdout.splitlines()
    assert title == "at 09:30 on Monday through Friday, Europe/Riga"
    assert len(lines) == 2
    assert all(" 09:30:00 EE" in line for line in lines)


def test_preview_notes_a_clock_that_is_turned(sereno: Command) -> None:
    words = ["schedule", "preview", "--daily", "03:30", "--tz", "Europe/Riga", "-n", "1"]
    forward = sereno(*words, "--after", "2090-03-25T12:00").stdout
    assert "Sun 2090-03-26 04:00:00 EEST" in forward
    assert "03:30 does not exist on this day: runs at 04:00" in forward
    back = json.loads(sereno(*words, "--after", "2090-10-28T12:00", "-o", "json").stdout)
    assert "comes twice, runs on the first pass" in back["upcoming"][0]["note"]


def test_preview_shows_the_place_in_the_spread(sereno: Command) -> None:
    words = ["schedule", "preview", "--daily", "06:00", "--spread", "20m", "-n", "1"]
    assert "menu:42   every day at 06:00, UTC (spread +14m59s)" in sereno(*words, "--key", "menu:42").stdout
    assert "06:14:59 UTC" in sereno(*words, "--key", "menu:42").stdout
    assert "spread over 20 m" in sereno(*words).stdout


def test_preview_of_a_moment_is_on_the_clock_that_was_named(sereno: Command) -> None:
    words = ["schedule", "preview", "--at", "2090-01-01T03:00", "--tz", "Europe/Riga"]
    title, line = sereno(*words).stdout.splitlines()
    assert title == "once at 2090-01-01 01:00 UTC"
    assert line.startswith("  Sun 2090-01-01 03:00:00 EET   in ")
    (found,) = json.loads(sereno(*words, "-o", "json").stdout)["upcoming"]
    assert (found["at"], found["local"]) == ("2090-01-01T01:00:00Z", "2090-01-01T03:00:00+02:00")
    added = sereno("schedule", "add", "k", "--task", "work", "--unchecked", *words[2:])
    assert "Next: Sun 2090-01-01 03:00:00 EET, in " in added.stdout


def test_preview_of_a_rhythm_of_milliseconds(sereno: Command) -> None:
    lines = sereno("schedule", "preview", "--every", "1ms", "-n", "3").stdout.splitlines()
    assert len(set(lines)) == 4


def test_preview_refuses(sereno: Command) -> None:
    for words, said in (
        (["* * *"], "is not a cron expression"),
        (["0 0 30 2 *"], "never"),
        ([], "exactly one of"),
        (["* * * * *", "--cron", "* * * * *"], "twice"),
        (["* * * * *", "--daily", "03:00"], "exactly one of"),
    ):
        result = sereno("schedule", "preview", *words)
        assert result.exit_code == 2, words
        assert said in result.stderr
    past = sereno("schedule", "preview", "--at", "2020-01-01")
    assert "Nothing is to come." in past.stdout


def test_help_imports_nothing_slow() -> None:
    for words in (["schedule", "--help"], ["schedule", "add", "--help"], ["scheduler", "--help"]):
        program = (
            "import sys\nfrom sereno.cli.main import main\n"
            f"try: main({words!r})\nexcept SystemExit: pass\n"
            f"print(*[name for name in {SLOW!r} if name in sys.modules], file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            encoding="utf-8",
            env=process_environment(),
        )
        assert done.stderr.split() == [], words
