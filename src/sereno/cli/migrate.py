"""`sereno migrate`."""

from typing import TYPE_CHECKING, Any

import click

from sereno.cli.failures import BEHIND
from sereno.cli.options import context_options

if TYPE_CHECKING:
    import psycopg

    from sereno.cli.context import CommandContext


@click.command(epilog="Example: sereno migrate --check || sereno migrate")
@click.option("--check", is_flag=True, help="Change nothing; exit with 5 when the schema is out of date.")
@click.option("--sql", is_flag=True, help="Print every migration as SQL, without connecting.")
@click.option(
    "--roles",
    type=click.Choice(["print", "create"]),
    help="Print the SQL of a least-privilege role for each process, without connecting, or create the roles.",
)
@click.option("--prefix", metavar="NAME", help="With --roles: NAME_owner, NAME_worker …  [default: the schema's name]")
@context_options
def migrate(context: "CommandContext", check: bool, sql: bool, roles: str | None, prefix: str | None) -> int:
    """Bring the database schema up to date. Safe to repeat and to run concurrently."""
    from sereno.database import migrate as migrations  # noqa: PLC0415 - slow to import; --help needs none

    schema = context.settings.schema
    if sum([check, sql, roles is not None]) > 1:
        raise click.UsageError("--check, --sql and --roles exclude each other: choose one")
    if prefix is not None and roles is None:
        raise click.UsageError("--prefix names roles: add --roles print or --roles create")
    if sql:
        for migration in migrations.migrations():
            click.echo(f"-- {migration.number:04}_{migration.name}\nbegin;\n\n{migration.text(schema)}\ncommit;\n")
        return 0
    if roles == "print":
        from sereno.database.roles import script  # noqa: PLC0415 - slow to import; --help needs none

        click.echo(script(schema, prefix or schema), nl=False)
        return 0
    if check:
        behind = migrations.pending(context.connection(), schema)
        for migration in behind:
            click.echo(f"{migration.number:04}_{migration.name}")
        where = f"schema {schema} in {_place(context.connection())}"
        message = f"{len(behind)} to apply to {where}: run `sereno migrate`" if behind else f"Up to date: {where}."
        click.echo(message, err=True)
        return BEHIND if behind else 0
    connection = context.connection(create=True)
    applied = migrations.migrate(connection, schema)
    for migration in applied:
        click.echo(f"{migration.number:04}_{migration.name}")
    where = f"schema {schema} in {_place(connection)}"
    click.echo(f"{len(applied)} applied to {where}." if applied else f"Up to date already: {where}.", err=True)
    if applied or roles:
        _update_roles(context, prefix or schema if roles else None)
    return 0


def _place(connection: "psycopg.Connection[Any]") -> str:
    """Return the database of a connection, without user and password."""
    info = connection.info
    # A host that begins with a slash is the directory of a local socket.
    return f"database {info.dbname} at {info.host}" + ("" if info.host.startswith("/") else f":{info.port}")


def _update_roles(context: "CommandContext", prefix: str | None) -> None:
    """Create the roles with this prefix; without one, update the privileges of roles that already exist."""
    import psycopg  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.database import roles  # noqa: PLC0415 - as above
    from sereno.errors import Refused  # noqa: PLC0415 - as above

    schema = context.settings.schema
    names = prefix or roles.prefix_of(context.connection(), schema)
    if names is None:
        return
    try:
        made = roles.create(context.connection(), schema, names)
    except psycopg.errors.InsufficientPrivilege as error:
        raise Refused(
            f"{str(error).splitlines()[0]}: an administrator has to create or update the roles {names}_*; "
            f"print the SQL for it with: sereno migrate --roles print --prefix {names}"
        ) from None
    click.echo(f"The roles {names}_* have exactly the privileges that this version needs.", err=True)
    for name in made:
        click.echo(f"{name} has no password yet. In psql: \\password {name}", err=True)
