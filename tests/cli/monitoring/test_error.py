"""`sereno error`: list, show and mute."""

import json

import pytest

from sereno import Sereno
from sereno.error_text import FailureText
from sereno.jobs.queries import error_groups
from sereno.telemetry.metrics import MetricTally
from tests.cli.conftest import Command

FINGERPRINT, OTHER_FINGERPRINT = "3fa9c01b77d2", "000000000001"
HOSTILE = "\x1b[2J\x1b]0;owned\x07 first\nsecond\tthird <b>"


@pytest.fixture
def recorded_failures(app: Sereno) -> None:
    tally = MetricTally()
    for tenant in ("r42", "r42", None):
        tally.failed(FailureText(FINGERPRINT, "charge", "OSError", HOSTILE, "shop.py:charge"), 7, tenant)
    tally.failed(FailureText(OTHER_FINGERPRINT, "send", "Dead", "no address"), 8, "r7")
    for failures in (0, 1):
        tally.job("default", "charge", "succeeded", 0, 0)
        if failures:
            tally.succeeded_after("charge", failures)
    app.database.run(error_groups.add(tally))


@pytest.mark.usefixtures("recorded_failures")
def test_errors_are_listed(sereno: Command) -> None:
    done = sereno("error", "list", "--sort", "count")
    assert done.exit_code == 0, done.output
    header, first, second = done.stdout.splitlines()
    assert header.split("\t") == ["fingerprint", "task", "count", "last", "first", "24 hours", "where", "error"]
    cells = first.split("\t")
    assert (cells[:3], cells[6], second.split("\t")[0]) == (
        [FINGERPRINT, "charge", "3"],
        "shop.py:charge",
        OTHER_FINGERPRINT,
    )
    assert cells[7].endswith("first second third <b>")
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    only = sereno("error", "list", "--tenant", "r42", "--task", "charge", "--since", "7d", "-o", "json").stdout
    assert [(each["fingerprint"], each["count"], each["total"]) for each in json.loads(only)["items"]] == [
        (FINGERPRINT, 2, 3)
    ]


@pytest.mark.usefixtures("recorded_failures")
def test_an_error_is_shown(sereno: Command) -> None:
    done = sereno("error", "show", FINGERPRINT)
    assert done.exit_code == 0, done.output
    for words in (FINGERPRINT, "charge", "shop.py:charge", "3 times", "r42", "0 jobs", "1 after 1, 1 after 2"):
        assert words in done.stdout
    assert "\x1b" not in done.stdout
    found = json.loads(sereno("error", "show", FINGERPRINT, "-o", "json").stdout)
    assert (found["group"]["message"], found["tries"][:2]) == (HOSTILE, [1, 1])


@pytest.mark.usefixtures("recorded_failures")
def test_an_error_is_muted_and_unmuted(sereno: Command) -> None:
    done = sereno("error", "mute", FINGERPRINT, "--until", "8h", "--note", "they are on it")
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"{FINGERPRINT} is muted until" in done.stderr
    left = json.loads(sereno("error", "list", "-o", "json").stdout)["items"]
    assert [each["fingerprint"] for each in left] == [OTHER_FINGERPRINT]
    assert len(json.loads(sereno("error", "list", "--muted", "-o", "json").stdout)["items"]) == 2
    page = sereno("error", "show", FINGERPRINT).stdout
    assert "they are on it" in page
    assert "muted" in page
    assert "is not muted any more" in sereno("error", "mute", FINGERPRINT, "--off").stderr
    assert len(json.loads(sereno("error", "list", "-o", "json").stdout)["items"]) == 2


@pytest.mark.usefixtures("recorded_failures")
def test_invalid_error_arguments_are_refused(sereno: Command, subtests: pytest.Subtests) -> None:
    for words, code in [
        (["show", "ffffffffffff"], 7),
        (["mute", "ffffffffffff", "--off"], 7),
        (["mute", FINGERPRINT], 2),
        (["mute", FINGERPRINT, "--until", "8h", "--off"], 2),
        (["list", "--since", "soon"], 2),
        (["list", "--since", "90d"], 2),
        (["list", "--sort", "size"], 2),
    ]:
        with subtests.test(words=words):
            done = sereno("error", *words)
            assert done.exit_code == code, done.output
            assert done.stdout == ""


def test_an_empty_list_says_that_nothing_failed(sereno: Command) -> None:
    assert "No failure in the last 24h." in sereno("error", "list", "-o", "table").output
