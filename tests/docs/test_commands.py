"""Every call of `sereno` that a page shows is one that the command line takes: its words, options and values."""

import re
import shlex
from itertools import takewhile
from pathlib import Path

import click
import pytest

from sereno.cli.main import main
from tests.docs.pages import PAGES, blocks

# What a page leaves to its reader; and where one command of a line ends.
LEFT_OUT = "…"
BETWEEN = re.compile(r"\|\|?|&&|\$ ")
CALL = re.compile(r"\s*(?:\w+=\S* )*sereno (?P<words>.*)")


def calls() -> list[tuple[str, str]]:
    """Where each stands, and its words behind `sereno`."""
    return [
        (str(block), call["words"])
        for page in PAGES
        for block in blocks(page)
        if block.language in {"", "sh"}
        for line in block.code.replace("\\\n", " ").splitlines()
        for part in BETWEEN.split(line)
        if (call := CALL.match(part)) and LEFT_OUT not in part
    ]


CALLS = calls()


@pytest.mark.parametrize("words", [pytest.param(words, id=f"{where} {words}") for where, words in CALLS])
def test_a_call_is_one_that_the_command_line_takes(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file that one of them reads.
    monkeypatch.chdir(tmp_path)
    Path("words.j2").touch()
    rest = list(takewhile(lambda word: word not in {"<", ">"}, shlex.split(words, comments=True)))
    command: click.Command = main
    context = None
    while isinstance(command, click.Group) and (rest or not command.invoke_without_command):
        context = command.make_context(command.name, rest, parent=context)
        named = [*context._protected_args, *context.args]
        _, found, rest = command.resolve_command(context, named)
        assert found is not None
        command = found
    with command.make_context(command.name, rest, parent=context):
        """Leaving closes the file that it opened."""


def test_the_pages_show_many() -> None:
    assert len(CALLS) > 200
