"""`sereno config show`."""

from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, show_list

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext

COLUMNS = (
    Column("setting", lambda line: line.setting),
    Column("value", lambda line: _words(line.value)),
    Column("from", lambda line: line.source, "wide"),
)


@click.group()
def config() -> None:
    """Show settings and where each one comes from."""


@config.command("show", epilog="Example: sereno config show -o json")
@output_option
@context_options
def show(context: "CommandContext", form: str) -> None:
    """Show every setting, its value and its source. Secrets are masked."""
    from sereno.monitoring.settings import list_settings  # noqa: PLC0415 - slow to import; --help needs none

    lines = list_settings(context.settings, context.sources)
    show_list(form, lines, COLUMNS, empty="")


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={slots}" for name, slots in value.items())
    return "" if value is None else str(value)
