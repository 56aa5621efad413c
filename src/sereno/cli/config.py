"""`sereno config show`."""

import re
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import desk_options, output_option
from sereno.cli.output import Column, show_list

if TYPE_CHECKING:
    from sereno.cli.desk import Desk

MASK = "********"
COLUMNS = (
    Column("setting", lambda line: line["setting"]),
    Column("value", lambda line: _words(line["value"])),
    Column("from", lambda line: line["source"], "wide"),
)


@click.group()
def config() -> None:
    """Settings, with where each came from."""


@config.command("show", epilog="Example: sereno config show -o json")
@output_option
@desk_options
def show(desk: "Desk", form: str) -> None:
    """Every setting, its value and where it came from. Secrets are masked."""
    lines = [
        {
            "setting": name,
            "value": masked(name, getattr(desk.settings, name)),
            "source": desk.sources.get(name, "default"),
        }
        for name in desk.settings.__struct_fields__
    ]
    show_list(form, lines, COLUMNS, empty="")


def masked(name: str, value: Any) -> Any:
    """Passwords in addresses, and tokens, are nobody's to see."""
    if not isinstance(value, str):
        return value
    if "token" in name or "secret" in name or "password" in name:
        return MASK
    value = re.sub(r"(://[^:/@\s]*):[^@\s]*@", rf"\1:{MASK}@", value)
    return re.sub(r"(\bpassword\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]*)", rf"\1{MASK}", value, flags=re.IGNORECASE)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={slots}" for name, slots in value.items())
    return "" if value is None else str(value)
