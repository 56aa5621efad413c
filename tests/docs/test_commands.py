"""The command line accepts every call of `sereno` that a page shows: commands, options and values."""

import re
import shlex
from itertools import takewhile
from pathlib import Path

import click
import pytest

from sereno.cli.main import main
from tests.docs.pages import PAGES, blocks

# Marks text that a page leaves to its reader.
LEFT_OUT = "…"
# Ends a command within a line.
SEPARATOR = re.compile(r"\|\|?|&&|\$ ")
CALL = re.compile(r"\s*(?:\w+=\S* )*sereno (?P<words>.*)")


def calls() -> list[tuple[str, str]]:
    """Return the position of each call, and its arguments."""
    return [
        (str(block), call["words"])
        for page in PAGES
        for block in blocks(page)
        if block.language in {"", "sh"}
        for line in block.code.replace("\\\n", " ").splitlines()
        for part in SEPARATOR.split(line)
        if (call := CALL.match(part)) and LEFT_OUT not in part
    ]


CALLS = calls()


def test_every_documented_call_is_accepted_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    # One of the calls reads this file.
    monkeypatch.chdir(tmp_path)
    Path("words.j2").touch()
    assert len(CALLS) > 200
    for position, words in CALLS:
        with subtests.test(position=position, words=words):
            parse(words)


def parse(words: str) -> None:
    """Raise an error if the command line does not accept these arguments."""
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
        """The exit closes files that the parsing has opened."""
