"""`sereno doctor`."""

from typing import TYPE_CHECKING

import click

from sereno.cli.failures import UNHEALTHY
from sereno.cli.options import context_options, output_option
from sereno.cli.output import STYLES, chosen_form, show_json, visible, wrapped

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.monitoring.doctor import DoctorCheck


@click.command(epilog="Example: sereno doctor || alert")
@output_option
@context_options
def doctor(context: "CommandContext", form: str) -> int:
    """Find problems and suggest fixes. Exits with 6 when a check fails."""
    from sereno.monitoring.doctor import doctor as operation  # noqa: PLC0415 - slow to import; --help needs none

    checks = context.run(operation(context.settings))
    checks += _replication(context)
    failed = any(check.level == "fail" for check in checks)
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"healthy": not failed, "checks": checks}, indent=2 if form == "json" else 0)
        return UNHEALTHY if failed else 0
    for check in checks:
        show_finding(check.level, check.name, check.message, check.remedy)
    return UNHEALTHY if failed else 0


def _replication(context: "CommandContext") -> "list[DoctorCheck]":
    """Check the servers of the address, and the standby of `read_url`."""
    from sereno.monitoring.standby import check_servers, check_standby, primary_position  # noqa: PLC0415 - as above

    servers = check_servers(context.settings.database_url or "")
    checks = [] if servers is None else [servers]
    if context.settings.read_url:
        checks.append(check_standby(context.settings, context.run(primary_position())))
    return checks


def show_finding(level: str, name: str, message: str, remedy: str = "", *, width: int = 14) -> None:
    """Print one finding; the level is coloured on a terminal."""
    label = level if level == "ok" else level.upper()
    colour = STYLES.get(level, "").removeprefix("bold ") or None
    indent = width + 7
    first, *rest = wrapped(visible(message), indent)
    click.echo(f"{click.style(f'{label:<5}', fg=colour, bold=level == 'fail')} {name:<{width}} {first}")
    for line in rest:
        click.echo(" " * indent + line)
    if remedy:
        # Not wrapped, so that its commands can be copied.
        click.echo(f"{'':<6}{click.style('→ ' + visible(remedy), dim=True)}")
