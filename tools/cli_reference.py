"""Write docs/reference/commands.md: every command with its arguments and options, from the command line itself.

    make reference

A test compares the page with the commands.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from sereno.cli.main import SECTIONS, main

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"

INTRODUCTION = """# All commands

Every command with its arguments and options, as `--help` prints them; every command has `--help`. This page is
generated from the command line by `make reference`; [the command line](cli.md) explains the commands, with examples,
output formats and exit codes.
"""


def reference() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for section, names in SECTIONS.items():
        parts.append(f"## {section}\n")
        for name in names:
            command = main.get_command(click.Context(main, info_name="sereno"), name)
            assert command is not None
            parts += _commands(command, f"sereno {name}")
    return "\n".join(parts)


def _commands(command: click.Command, path: str) -> Iterator[str]:
    """Yield the text of a command, and of the commands below it."""
    context = click.Context(command, info_name=path)
    yield f"### `{path}`\n"
    yield f"{_text(command.help)}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _commands(found, f"{path} {name}")
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{path} {usage}".rstrip() + "\n```\n"
    rows = [
        f"| `{_cell(record[0])}` | {_cell(_text(record[1]))} |"
        for each in command.get_params(context)
        if "--help" not in each.opts and (record := each.get_help_record(context)) is not None and record[1]
    ]
    if rows:
        yield "\n".join(["| option | meaning |", "|---|---|", *rows, ""])


def _text(words: str | None) -> str:
    """Return a help text as Markdown: with characters that Markdown would read escaped."""
    paragraphs = (words or "").replace("\b\n", "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return text.replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(reference())
