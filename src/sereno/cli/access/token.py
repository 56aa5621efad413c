"""`sereno token …`: manage API tokens."""

from typing import TYPE_CHECKING

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, chosen_form, show_json, show_list

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext

COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("name", lambda line: line.name, "name"),
    Column("role", lambda line: line.role),
    Column("tenant", lambda line: line.tenant, "name"),
    Column("created", lambda line: line.created_at),
    Column("by", lambda line: line.created_by),
    Column("expires", lambda line: line.expires_at),
    Column("used", lambda line: line.used_at),
    Column("revoked", lambda line: line.revoked_at),
)


@click.group()
def token() -> None:
    """Create, list and revoke API tokens."""


@token.command(epilog="Example: sereno token create grafana --role viewer --expires-in 90d")
@click.argument("name")
@click.option("--role", type=click.Choice(["viewer", "operator", "admin"]), default="viewer", show_default=True)
@click.option("--tenant", help="Limit the token to this tenant.")
@click.option("--expires-in", metavar="DURATION", help='Lifetime, such as "90d".  [default: no expiry]')
@output_option
@context_options
def create(
    context: "CommandContext", name: str, role: str, tenant: str | None, expires_in: str | None, form: str
) -> None:
    """Create a token and print it. It is shown once; only its hash is stored."""
    from sereno.access.operations import create as operation  # noqa: PLC0415 - slow to import; --help needs none

    made = context.run(operation(name, role, tenant=tenant, expires_in=expires_in))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(made, indent=2 if form == "json" else 0)
        return
    click.echo(made.secret)
    click.echo("Store it safely: it is not shown again. Send it as Authorization: Bearer TOKEN", err=True)


@token.command("list", epilog="Example: sereno token list")
@output_option
@context_options
def list_tokens(context: "CommandContext", form: str) -> None:
    """List all tokens, valid ones first."""
    from sereno.access.operations import list_tokens as operation  # noqa: PLC0415 - slow to import; --help needs none

    show_list(
        form, context.run(operation()), COLUMNS, empty="No tokens. Create one: sereno token create me --role admin"
    )


@token.command(epilog="Example: sereno token revoke grafana")
@click.argument("name", metavar="NAME_OR_ID")
@context_options
def revoke(context: "CommandContext", name: str) -> None:
    """Revoke a token. It stops working within seconds."""
    from sereno.access.operations import revoke as operation  # noqa: PLC0415 - slow to import; --help needs none

    click.echo(f"Revoked the token {context.run(operation(name))!r}.", err=True)
