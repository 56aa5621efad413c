"""`sereno verify`."""

from typing import TYPE_CHECKING

import click

from sereno.cli.failures import UNHEALTHY
from sereno.cli.options import context_options, output_option
from sereno.cli.output import chosen_form, show_json, visible

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext


@click.command(epilog="Example: sereno verify --all -o json")
@click.option("--all", "everything", is_flag=True, help="Check every row, not only the newest 100,000.")
@output_option
@context_options
def verify(context: "CommandContext", everything: bool, form: str) -> int:
    """Check the invariants on the live database, read-only. Exits with 6 when one is violated."""
    from sereno.cli.monitoring.doctor import show_finding  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.monitoring.verify import WINDOW  # noqa: PLC0415 - see above
    from sereno.monitoring.verify import verify as operation  # noqa: PLC0415 - see above

    invariants = context.run_bare(operation(lease=context.settings.lease, window=None if everything else WINDOW))
    broken = [invariant for invariant in invariants if not invariant.holds]
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"holds": not broken, "invariants": invariants}, indent=2 if form == "json" else 0)
        return UNHEALTHY if broken else 0
    for invariant in invariants:
        show_finding("ok" if invariant.holds else "fail", invariant.name, invariant.promise, width=26)
        for violation in invariant.violations:
            click.echo(f"{'':<33}{violation.id}: {visible(violation.what)}")
    text = (
        f"{len(broken)} of {len(invariants)} invariants are violated."
        if broken
        else f"All {len(invariants)} invariants hold."
    )
    click.echo(text, err=True)
    return UNHEALTHY if broken else 0
