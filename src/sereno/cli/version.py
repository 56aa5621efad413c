"""`sereno version`."""

import platform

import click

from sereno.version import __version__


@click.command(epilog="Example: sereno version")
def version() -> None:
    """Print the versions of sereno and Python."""
    click.echo(f"sereno {__version__} (Python {platform.python_version()})")
