"""User input is printed without terminal control characters."""

import json

import pytest

from sereno.cli.output import _plain, human
from tests.cli.conftest import Command
from tests.manual_worker import ManualWorker

# Sets the title of the window and the colour of all following text, and reverses the direction of the text.
HOSTILE = "x\x1b]0;owned\x07\x1b[31m\x9b31m\u202e"
CONTROL_CHARACTERS = ("\x1b", "\x07", "\x9b", "\u202e")


def _is_harmless(text: str) -> bool:
    return not any(character in text for character in CONTROL_CHARACTERS)


def test_cells_contain_no_control_characters(subtests: pytest.Subtests) -> None:
    for value in [HOSTILE, [HOSTILE, 1], {HOSTILE: HOSTILE}, ("a", HOSTILE)]:
        with subtests.test(value=value):
            for words in (human(value), _plain(value)):
                assert _is_harmless(words)
                assert "\N{REPLACEMENT CHARACTER}]0;owned" in words


def test_a_value_is_one_line_in_a_pipe() -> None:
    assert _plain(["a\nb", "c\td"]) == "a b,c d"
    assert _plain({"a\n": "b\t"}) == "a =b "


@pytest.mark.slow
def test_lists_contain_no_control_characters(sereno: Command, manual: ManualWorker, subtests: pytest.Subtests) -> None:
    manual.dead(HOSTILE, tenant=HOSTILE)
    manual.enqueue(queue=HOSTILE, tags=[HOSTILE])
    manual.worker(queues={HOSTILE: 1}, tasks=("greet",))
    sereno("queue", "pause", "--tenant", HOSTILE, "--note", HOSTILE, "--force")
    for form in ("table", "auto"):
        with subtests.test(form=form):
            for words in (
                ("job", "list"),
                ("status",),
                ("queue", "list"),
                ("worker", "list"),
                ("error", "list"),
                ("log", "list"),
                ("alert", "now"),
            ):
                done = sereno(*words, "-o", form)
                assert done.exit_code == 0, (words, done.output)
                assert _is_harmless(done.output), words
            assert "owned" in sereno("job", "list", "-o", form).stdout
            assert "owned" in sereno("status", "-o", form).stdout


@pytest.mark.slow
def test_sentences_contain_no_control_characters(sereno: Command, manual: ManualWorker) -> None:
    waiting = manual.enqueue(queue=HOSTILE, tenant=HOSTILE)
    dead = manual.dead(HOSTILE)
    sereno("queue", "pause", HOSTILE, "--note", HOSTILE, "--force")
    for words in (
        ("why", waiting),
        ("why", dead),
        ("doctor",),
        ("verify",),
        ("job", "cancel", "--queue", HOSTILE, "--dry-run"),
        ("top", "--every", "0.1", "--seconds", "0.1"),
    ):
        done = sereno(*map(str, words))
        assert _is_harmless(done.output), words
    assert "owned" in sereno("why", str(dead)).stdout


REFUSED_COMMANDS = [
    ("template", "show", HOSTILE, "email"),
    ("recipient", "show", HOSTILE),
    ("schedule", "run", HOSTILE),
    ("error", "show", HOSTILE),
    ("limit", "show", HOSTILE),
    ("alert", "test", HOSTILE),
    ("token", "revoke", HOSTILE),
    ("token", "create", HOSTILE, "--expires-in", HOSTILE),
    ("queue", "list", "--database-url", f"postgresql://{HOSTILE}@127.0.0.1:1/x"),
    ("job", "enqueue", HOSTILE, "-a", HOSTILE),
    ("job", "list", f"state:{HOSTILE}"),
]


def test_errors_contain_no_control_characters(sereno: Command, subtests: pytest.Subtests) -> None:
    for words in REFUSED_COMMANDS:
        with subtests.test(words=words):
            done = sereno(*words)
            assert done.exit_code != 0
            assert _is_harmless(done.output)
            assert done.output


def test_json_has_the_original_values(sereno: Command, manual: ManualWorker) -> None:
    manual.enqueue(tenant=HOSTILE)
    (item,) = json.loads(sereno("job", "list", "-o", "json").stdout)["items"]
    assert item["tenant"] == HOSTILE
