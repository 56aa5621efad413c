"""Commands that the program prints exist, with the options and arguments that are printed with them."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sereno.cli.main import main

SOURCES = Path(__file__).parents[2] / "src" / "sereno"
# Values that are filled in by Jinja, and names of numbers.
FILLED_IN = re.compile(r"\{\{.*?\}\}|\bN\b")
# A command in a sentence: words and quoted texts, up to the end of the clause.
COMMAND = re.compile(r"""(?:'[^']*'|"[^"]+"|(?!\.(?:\s|$)|[,;:]\s| \|\| | > | or sereno | shows )[^`<\n"'])*""")


def test_printed_commands_can_be_run(subtests: pytest.Subtests) -> None:
    names = "|".join(main.list_commands(click.Context(main)))
    # In backquotes, in <code>, after a colon, or in a sentence.
    words = r"[`>]|: |\b(?:see|run|use|with|by|or|then|type|and|try) "
    form = re.compile(rf"(?i:{words})sereno ((?:{names})\b[^\n]*)")
    found = {
        COMMAND.match(match[1])[0].strip(): path.name  # type: ignore[index]  # it matches everything
        for path in sorted(SOURCES.rglob("*"))
        for text in _texts(path)
        if "sereno " in text
        for match in form.finditer(text)
    }
    assert len(found) > 100
    for command, file in found.items():
        with subtests.test(command=command, file=file):
            _parse(shlex.split(FILLED_IN.sub("7", command).replace("…", "")))


def _texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file that a person may see: of Python its strings, with 7 for each value filled in."""
    if path.suffix in (".html", ".js", ".tmpl"):
        yield path.read_text()
    elif path.suffix == ".json":
        for english, translated in json.loads(path.read_text()).items():
            yield from (english, str(translated))
    elif path.suffix == ".py" and "sereno " in (source := path.read_text()):
        parts: set[ast.AST] = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.JoinedStr):
                parts.update(node.values)
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
                yield re.sub(r"\\\n\s*", "", node.value)


def _parse(words: list[str]) -> None:
    """Parse the words as the command line does. A command without arguments is only mentioned."""
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words[0])
        if found is None:
            # `sereno worker MODULE:APP`: this group runs by itself.
            assert command.name == "worker", f"there is no command {words[0]}"
            return
        command, words = found, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    if words:
        try:
            command.make_context(command.name, words, parent=context.parent)
        except click.BadParameter as error:
            # The example names a file.
            if "No such file" not in error.message:
                raise
