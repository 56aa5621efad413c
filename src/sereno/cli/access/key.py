"""`sereno key new`: create a key for encrypted arguments."""

from datetime import UTC, datetime

import click


@click.group()
def key() -> None:
    """Create keys for encrypted arguments."""


@key.command(epilog="Example: sereno key new --id 2026b")
@click.option("--id", "key_id", metavar="ID", help="Name of the key, stored with each value.  [default: today's date]")
def new(key_id: str | None) -> None:
    """Print a new random key, as SERENO_ENCRYPTION_KEYS lists it. It is stored nowhere."""
    from sereno.jobs.encryption import new_key  # noqa: PLC0415 - slow to import; --help needs none

    click.echo(new_key(key_id or datetime.now(UTC).strftime("%Y%m%d")))
    click.echo("Put it in front of the others in SERENO_ENCRYPTION_KEYS: the first encrypts, all decrypt.", err=True)
