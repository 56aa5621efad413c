"""`sereno migrate`."""

from typing import TYPE_CHECKING

import click

from sereno.cli.failures import BEHIND
from sereno.cli.options import desk_options

if TYPE_CHECKING:
    from sereno.cli.desk import Desk


@click.command(epilog="Example: sereno migrate --check || sereno migrate")
@click.option("--check", is_flag=True, help="Change nothing; exit with 5 when the schema is behind.")
@click.option("--sql", is_flag=True, help="Print every migration as SQL, for a tool of your own. Connects to nothing.")
@desk_options
def migrate(desk: "Desk", check: bool, sql: bool) -> int:
    """Bring the database schema up to date. Safe to run again, and by many at once."""
    from sereno.store import migrate as migrations  # noqa: PLC0415 - slow to import; --help needs none

    schema = desk.settings.schema
    if sql:
        for migration in migrations.migrations():
            click.echo(f"-- {migration.number:04}_{migration.name}\nbegin;\n\n{migration.text(schema)}\ncommit;\n")
        return 0
    if check:
        behind = migrations.pending(desk.connection(), schema)
        for migration in behind:
            click.echo(f"{migration.number:04}_{migration.name}")
        click.echo(f"{len(behind)} to apply: run `sereno migrate`" if behind else "Up to date.", err=True)
        return BEHIND if behind else 0
    applied = migrations.migrate(desk.connection(create=True), schema)
    for migration in applied:
        click.echo(f"{migration.number:04}_{migration.name}")
    click.echo(f"{len(applied)} applied to schema {schema}." if applied else "Up to date already.", err=True)
    return 0
