"""The command line accepts every call of `sereno` that a page shows: commands, options and values."""

import os
import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import click
import pytest

from sereno.cli.main import main
from tests.docs.pages import PAGES, ROOT, blocks

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


def test_every_call_of_the_troubleshooting_page_is_accepted_by_the_command_line(subtests: pytest.Subtests) -> None:
    """Its commands are in tables, not in blocks."""
    page = ROOT / "docs" / "operate" / "troubleshooting.md"
    found = [words for words in re.findall(r"`sereno ([^`]+)`", page.read_text()) if LEFT_OUT not in words]
    assert len(found) > 20
    for words in found:
        with subtests.test(words=words):
            parse(words)


@pytest.mark.slow
def test_the_documented_shell_completion_completes() -> None:
    """The scripts of the page are those of the shells, and complete a command."""
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    shells = re.findall(r"_SERENO_COMPLETE=(\w+)_source sereno", page)
    assert shells == ["bash", "zsh", "fish"]
    for shell in shells:
        script = completion({"_SERENO_COMPLETE": f"{shell}_source"})
        assert f"_SERENO_COMPLETE={shell}_complete" in script
    words = {"COMP_WORDS": "sereno job re", "COMP_CWORD": "2"}
    assert completion({"_SERENO_COMPLETE": "bash_complete", **words}).split() == ["plain,retry"]


def completion(environment: dict[str, str]) -> str:
    program = Path(sys.executable).with_name("sereno")
    ran = subprocess.run([program], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=False)
    return ran.stdout
