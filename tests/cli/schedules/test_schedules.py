"""`sereno schedule list`, `show` and `next`, as text and as JSON."""

import json
from pathlib import Path

import psycopg

from tests.cli.conftest import Command
from tests.cli.schedules.schedule_steps import add, shown
from tests.cli.terminal import screen
from tests.facts import advance


def test_list_in_a_pipe_has_plain_values(sereno: Command) -> None:
    add(sereno, "menu:42", "--daily", "03:00", "--tz", "Europe/Riga", "--tenant", "r42")
    done = sereno("schedule", "list")
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


def test_an_empty_list_of_schedules(sereno: Command) -> None:
    empty = sereno("schedule", "list", "-o", "table")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "No schedule matches." in empty.stderr
    assert sereno("schedule", "list", "--fail-empty").exit_code == 7
    assert json.loads(sereno("schedule", "list", "-o", "json").stdout) == {"items": [], "next": None}


def test_list_can_be_sorted_by_the_next_run(sereno: Command) -> None:
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


def test_control_characters_in_a_key_are_not_printed(sereno: Command, database_url: str, tmp_path: Path) -> None:
    key = "\x1b[31mred\x07\nnext"
    add(sereno, key, "--every", "1h")
    for words in (["schedule", "list"], ["schedule", "show", key], ["schedule", "next", key]):
        text = screen(words, database_url, tmp_path)
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "�[31mred� next" in text


def test_an_invalid_rule_is_shown_as_stored(sereno: Command, connection: psycopg.Connection) -> None:
    connection.execute("select sereno.schedule('bad', 'work', cron => '61 * * * *')")
    for words in (["list"], ["show", "bad"], ["next", "bad"], ["export"]):
        result = sereno("schedule", *words)
        assert result.exit_code == 0, result.stderr
        assert "61 * * * *" in result.stdout
    assert "1 parked" in sereno("schedule", "tick").stdout
    page = sereno("schedule", "show", "bad").stdout
    assert "parked: " in page
    assert "minute 61 is out of range" in page


def test_show_as_text_and_as_json(sereno: Command, connection: psycopg.Connection) -> None:
    add(sereno, "menu:42", "--daily", "06:00", "--tz", "Africa/Nairobi", "--spread", "20m", "--disable-after", "3")
    for _ in range(2):
        advance(connection, 86400)
        sereno("schedule", "tick")
    page = sereno("schedule", "show", "menu:42").stdout
    for words in (
        "menu:42",
        "every day at 06:00, Africa/Nairobi (spread +14m59s)",
        "queue default, priority 5",
        "latest: one run covers all",
        "skip: an instant is skipped while",
        "after 3 failed runs in a row (0 now)",
        "fired 1,",
        "overlap 1",
        "skipped: the previous run was still active",
        "06:14:59 EAT",
    ):
        assert words in page
    detail = shown(sereno, "menu:42")
    assert detail["schedule"]["skipped"] == {"overlap": 1}
    assert [fire["reason"] for fire in detail["fires"]] == ["overlap", None]
    assert len(detail["upcoming"]) == 5
    assert detail["upcoming"][0]["local"].endswith("+03:00")
    assert "skipped: the previous run" not in sereno("schedule", "show", "menu:42", "-n", "0").stdout


def test_show_names_the_author_and_reason_of_a_pause(sereno: Command) -> None:
    add(sereno, "k", "--daily", "06:00")
    sereno("schedule", "pause", "k", "--note", "holidays")
    page = sereno("schedule", "show", "k").stdout
    assert "paused by " in page
    assert ": holidays" in page
    assert "No next run: it is paused by " in sereno("schedule", "next", "k").stdout


def test_next_is_shown_in_the_zone_of_the_schedule(sereno: Command) -> None:
    add(sereno, "menu:42", "--daily", "06:00", "--tz", "America/Sao_Paulo")
    title, *lines = sereno("schedule", "next", "menu:42", "-n", "3").stdout.splitlines()
    assert title == "menu:42   every day at 06:00, America/Sao_Paulo   work"
    assert len(lines) == 3
    assert all(" 06:00:00 -03   in " in line for line in lines)
    found = json.loads(sereno("schedule", "next", "menu:42", "-o", "json").stdout)
    assert found["upcoming"][0]["zone"] == "-03"
    assert found["state"] == "enabled"


def test_next_of_a_paused_schedule_begins_after_the_pause(sereno: Command) -> None:
    add(sereno, "k", "--daily", "06:00")
    sereno("schedule", "pause", "k", "--until", "2090-01-08T12:00+00:00")
    found = json.loads(sereno("schedule", "next", "k", "-o", "json").stdout)
    assert found["upcoming"][0]["at"] == "2090-01-09T06:00:00Z"


def test_next_shows_an_overdue_instant_and_continues_from_now(sereno: Command, connection: psycopg.Connection) -> None:
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


def test_a_missing_schedule_exits_with_7(sereno: Command) -> None:
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
