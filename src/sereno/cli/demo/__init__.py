"""`sereno demo`: runs the five example systems, each with its own worker, and the dashboard."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sereno.cli.demo.screen import DemoEnd
    from sereno.database.embedded import EmbeddedPostgres

DATABASE_VARIABLES = ("SERENO_DATABASE_URL", "DATABASE_URL")


@click.command(epilog="Example: sereno demo --seconds 60")
@click.option("--seconds", type=click.FloatRange(min=1), help="Stop after this many seconds and print a summary.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the dashboard; 0 picks a free one.  [default: 8765]"
)
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Directory of its database.  [default: one for all demos]"
)
@click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def demo(seconds: float | None, port: int | None, directory: Path | None) -> None:
    """Run a live demo. Starts its own PostgreSQL and never touches yours."""
    from sereno.cli.demo.screen import DemoScreen  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.database.embedded import EmbeddedPostgres  # noqa: PLC0415 - see above

    directory = (directory or demo_directory()).absolute()
    with EmbeddedPostgres(directory) as server:
        _reset_database(server)
        ending = asyncio.run(DemoScreen(server.url, directory, seconds, port).run())
    _print_next_steps(directory, ending)


def demo_directory() -> Path:
    """Return the directory of the demo's database, outside every project."""
    if os.geteuid() == 0:
        from sereno.database.embedded.programs import SYSTEM_DIRECTORY  # noqa: PLC0415 - slow to import

        return SYSTEM_DIRECTORY / "demo"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "sereno" / "demo"


def _reset_database(server: "EmbeddedPostgres") -> None:
    import psycopg  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.cli.demo.database import others, reset  # noqa: PLC0415 - see above
    from sereno.database.migrate import migrate  # noqa: PLC0415 - see above
    from sereno.database.statement import run  # noqa: PLC0415 - see above
    from sereno.errors import Refused  # noqa: PLC0415 - see above

    with psycopg.connect(server.url, autocommit=True) as connection:
        for pid in run(connection, others()):
            if _is_alive(pid):
                raise Refused(f"another demo is running (pid {pid}): stop it first")
        run(connection, reset())
        migrate(connection)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _print_next_steps(directory: Path, ending: "DemoEnd") -> None:
    in_the_way = [name for name in DATABASE_VARIABLES if os.environ.get(name)]
    click.echo("\nInspect the database of the demo:\n")
    if in_the_way:
        click.echo(f"  unset {' '.join(in_the_way)}")
    click.echo(f"  export SERENO_DIRECTORY={directory}")
    commands = {"sereno server": "the dashboard again", "sereno job list --state dead": "dead jobs, with reasons"}
    if ending.job is not None:
        commands[f"sereno why {ending.job}"] = "why a job has failed"
    if (delivery := ending.delivery) is not None:
        commands |= {
            f"sereno delivery show {delivery.id}": "a failed delivery, with the response of the provider",
            f"sereno why {delivery.recipient} {delivery.event}": "why the recipient was notified, or was not",
        }
    width = max(map(len, commands))
    for command, text in (commands | {"sereno verify": "check the invariants"}).items():
        click.echo(f"  {command:<{width}}  # {text}")
