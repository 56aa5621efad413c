"""`sereno limit …`: output and effect of each command."""

import json
from pathlib import Path
from typing import Any

import pytest

from sereno import Limit, Rate
from sereno.jobs.limits.store import declare
from tests.cli.conftest import Command
from tests.cli.terminal import screen
from tests.facts import one
from tests.manual_worker import ManualWorker


@pytest.fixture
def limited(manual: ManualWorker) -> ManualWorker:
    @manual.app.task(
        name="sync", concurrency=Limit(2, key="{tenant}"), rate=Rate(100, per="1m", name="ifood", burst=10)
    )
    def sync(name: str) -> None:
        """Never runs in these tests."""

    manual.app.queue("reconcile", concurrency=Limit(3))
    manual.app.database.run(declare(manual.app.registry, "shop"))
    return manual


def listed(sereno: Command, *words: str) -> dict[str, Any]:
    result = sereno("limit", "list", *words, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return {item["name"]: item for item in json.loads(result.stdout)["items"]}


def test_limits_are_listed_in_a_pipe_and_as_json(sereno: Command, limited: ManualWorker) -> None:
    lines = sereno("limit", "list").stdout.splitlines()
    heading, *rows = [line.split("\t") for line in lines]
    assert heading[:4] == ["limit", "says", "key", "queue"]
    assert [row[:4] for row in rows] == [
        ["ifood", "100 a minute, burst 10", "", ""],
        ["queue.reconcile.concurrency", "3 at once", "", "reconcile"],
        ["sync.concurrency", "2 at once", "{tenant}", ""],
    ]
    found = listed(sereno, "queue.*")
    assert list(found) == ["queue.reconcile.concurrency"]
    assert found["queue.reconcile.concurrency"]["declared"] == {"slots": 3}


def test_an_empty_list_says_where_limits_come_from(sereno: Command) -> None:
    result = sereno("limit", "list", "-o", "table")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "A worker writes the limits of its code" in result.stderr
    assert "No limit matches." in sereno("limit", "list", "mail.*", "-o", "table").stderr


def test_a_table_fits_its_terminal(
    sereno: Command, limited: ManualWorker, database_url: str, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    assert sereno("limit", "set", "ifood", "--rate", "50", "--per", "1m").exit_code == 0
    wide = 140
    for width in (60, 80, 100, wide):
        with subtests.test(width=width):
            text = screen(["limit", "list"], database_url, tmp_path, width)
            lines = text.splitlines()
            assert "50 a minute, burst 5" in text or "50 a minute, burst 1" in text
            assert all(len(line.rstrip()) <= width for line in lines if not line.startswith("Overridden"))
            if width == wide:
                assert "100 a minute, burst 10" in text
                assert "each {tenant}" in text
                assert "changed by" in lines[0]
            else:
                assert "Overridden: ifood;" in text


def test_set_shows_the_new_value_and_how_to_reset_it(sereno: Command, limited: ManualWorker) -> None:
    result = sereno("limit", "set", "ifood", "--rate", "50", "--per", "1m", "--burst", "5", "--note", "they asked")
    assert result.exit_code == 0
    assert "ifood: 50 a minute, burst 5." in result.stderr
    assert "`sereno limit reset ifood` restores 100 a minute, burst 10" in result.stderr
    page = sereno("limit", "show", "ifood").stdout
    assert "value       50 a minute, burst 5" in page
    assert "declared    100 a minute, burst 10  (shop)" in page
    assert ": they asked" in page
    assert "ifood: 100 a minute, burst 10, as declared." in sereno("limit", "reset", "ifood").stderr
    assert "changed" not in sereno("limit", "show", "ifood").stdout
    assert [action for _, action, _ in limited.audit()] == ["limit.set", "limit.reset"]


def test_zero_slots_start_no_job(sereno: Command, limited: ManualWorker) -> None:
    result = sereno("limit", "set", "sync.concurrency", "--slots", "0")
    assert "sync.concurrency: 0 at once; no job starts under it." in result.stderr


def test_a_limit_of_a_whole_queue_is_set_and_removed(sereno: Command, limited: ManualWorker) -> None:
    result = sereno("limit", "set", "--queue", "mail", "--slots", "5")
    assert "queue.mail.concurrency: 5 at once, for the whole queue 'mail'." in result.stderr
    assert "removes it" in result.stderr
    assert sereno("limit", "set", "--queue", "mail", "--rate", "10").exit_code == 0
    assert listed(sereno)["queue.mail.rate"]["queue"] == "mail"
    assert "removed; no code declares it" in sereno("limit", "reset", "queue.mail.concurrency").stderr
    assert "queue.mail.concurrency" not in listed(sereno)


def test_a_limit_is_closed_and_opened(sereno: Command, limited: ManualWorker) -> None:
    assert "ifood is closed until " in sereno("limit", "close", "ifood", "--for", "30s").stderr
    result = sereno("limit", "close", "sync.concurrency", "--for", "30s")
    assert result.exit_code == 2
    assert "give the key to close" in result.stderr
    for key in ("r1", "r2"):
        result = sereno("limit", "close", "sync.concurrency", "--key", key, "--for", "10m")
        assert f"sync.concurrency, key '{key}', is closed until " in result.stderr
    page = sereno("limit", "show", "sync.concurrency").stdout
    assert "closed      2 keys" in page
    assert {line.split("\t")[0] for line in page.splitlines()[-2:]} == {"r1", "r2"}
    one_key = json.loads(sereno("limit", "show", "sync.concurrency", "--key", "r1", "-o", "json").stdout)
    assert [limiter["key"] for limiter in one_key["keys"]] == ["r1"]
    assert "is open again (2 keys)" in sereno("limit", "open", "sync.concurrency").stderr
    assert "was not closed" in sereno("limit", "open", "sync.concurrency", "--key", "r1").stderr


def test_show_says_how_many_keys_it_omits(sereno: Command, limited: ManualWorker) -> None:
    for key in ("r1", "r2", "r3"):
        sereno("limit", "close", "sync.concurrency", "--key", key, "--for", "10m")
    assert "These are 2 of 3 keys" in sereno("limit", "show", "sync.concurrency", "-n", "2").stderr


def test_weights_of_fair_keys_are_set(sereno: Command, limited: ManualWorker) -> None:
    assert "Every fair key has weight 1." in sereno("limit", "weights", "-o", "table").stderr
    assert "'r1' gets 3 turns for each turn of the others" in sereno("limit", "weigh", "r1", "3").stderr
    (line,) = json.loads(sereno("limit", "weights", "-o", "json").stdout)["items"]
    assert (line["key"], line["weight"]) == ("r1", 3.0)
    assert "has the default weight of 1" in sereno("limit", "weigh", "r1", "1").stderr
    assert one(limited.connection, "select count(*) from sereno.weights") == 0


def test_control_characters_in_a_key_are_not_printed(sereno: Command, limited: ManualWorker) -> None:
    sereno("limit", "close", "sync.concurrency", "--key", "\x1b[2J\tevil\n", "--for", "10m")
    sereno("limit", "weigh", "\x1b[2Jevil", "3")
    for result in (sereno("limit", "show", "sync.concurrency"), sereno("limit", "weights")):
        assert "\x1b" not in result.stdout
        assert "evil" in result.stdout


REFUSED = [
    (["show", "ifod"], 7, "did you mean ifood?"),
    (["set", "ifod", "--slots", "1"], 7, "did you mean ifood?"),
    (["reset", "zzz"], 7, "there are: ifood, queue.reconcile.concurrency, sync.concurrency"),
    (["close", "zzz", "--for", "1s"], 7, "there is no limit 'zzz'"),
    (["open", "it's"], 7, "there is no limit"),
    (["set", "ifood", "--slots", "1"], 2, "is a rate"),
    (["set", "sync.concurrency", "--rate", "1"], 2, "give it slots"),
    (["set", "sync.concurrency", "--slots", "-1"], 2, "a whole number"),
    (["set", "sync.concurrency", "--slots", "many"], 2, "not a valid integer"),
    (["set", "sync.concurrency", "--slots", "1", "--per", "1m"], 2, "belong to a rate"),
    (["set", "ifood", "--rate", "nan"], 2, "a number above zero"),
    (["set", "ifood", "--rate", "5", "--per", "soon"], 2, "is not a duration"),
    (["set", "ifood", "--rate", "5", "--burst", "0"], 2, "at least 1"),
    (["set", "ifood"], 2, "--slots N, or --rate N"),
    (["set", "ifood", "--slots", "1", "--rate", "1"], 2, "--slots N, or --rate N"),
    (["set", "--slots", "1"], 2, "NAME, or --queue QUEUE"),
    (["set", "x" * 600, "--slots", "1"], 2, "must be text of 1 to 500 characters"),
    (["set", "ifood", "--rate", "1", "--note", ""], 2, "note ''"),
    (["close", "ifood"], 2, "--for"),
    (["close", "ifood", "--for", "0s"], 2, "more than 0"),
    (["weigh", "r1", "nan"], 2, "a number from 0.001"),
    (["weigh", "r1", "0"], 2, "a number from 0.001"),
    (["list", ""], 2, "pattern ''"),
]


@pytest.mark.slow
def test_errors_of_limit_commands_are_explained(
    sereno: Command, limited: ManualWorker, subtests: pytest.Subtests
) -> None:
    for words, code, message in REFUSED:
        with subtests.test(words=words):
            result = sereno("limit", *words)
            assert (result.exit_code, result.stdout) == (code, "")
            assert message in result.stderr
            assert limited.audit() == []


def test_a_missing_database_is_reported_first(sereno: Command) -> None:
    done = sereno("limit", "show", "ifood", SERENO_DATABASE_URL="")
    assert done.exit_code == 3
    assert "no database is configured" in done.stderr
