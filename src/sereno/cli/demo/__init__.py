"""`sereno demo`: the five systems of the examples at once, each with a worker of its own, and the dashboard."""

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
@click.option("--seconds", type=click.FloatRange(min=1), help="End by itself after so long, with a summary.")
@click.option("--port", type=click.IntRange(0, 65535), help="Of the dashboard; 0 takes a free one.  [default: 8765]")
@click.option("--directory", type=click.Path(path_type=Path), help="Of its database.  [default: one for all demos]")
@click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Show where an error comes from.")
def demo(seconds: float | None, port: int | None, directory: Path | None) -> None:
    """See it work. Starts a PostgreSQL of its own, and never touches yours."""
    from sereno.cli.demo.screen import DemoScreen  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.database.embedded import EmbeddedPostgres  # noqa: PLC0415 - see above

    directory = (directory or demo_directory()).absolute()
    with EmbeddedPostgres(directory) as server:
        _begin_afresh(server)
        ending = asyncio.run(DemoScreen(server.url, directory, seconds, port).run())
    _say_what_next(directory, ending)


def demo_directory() -> Path:
    """Where the demo's database lives: apart from every project."""
    if os.geteuid() == 0:
        from sereno.database.embedded.programs import SYSTEM_DIRECTORY  # noqa: PLC0415 - slow to import

        return SYSTEM_DIRECTORY / "demo"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "sereno" / "demo"


def _begin_afresh(server: "EmbeddedPostgres") -> None:
    import psycopg  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.cli.demo.database import others, reset  # noqa: PLC0415 - see above
    from sereno.database.migrate import migrate  # noqa: PLC0415 - see above
    from sereno.database.statement import run  # noqa: PLC0415 - see above
    from sereno.errors import Refused  # noqa: PLC0415 - see above

    with psycopg.connect(server.url, autocommit=True) as connection:
        for pid in run(connection, others()):
            if _lives(pid):
                raise Refused(f"another demo is running (pid {pid}): stop it first")
        run(connection, reset())
        migrate(connection)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _say_what_next(directory: Path, ending: "DemoEnd") -> None:
    in_the_way = [name for name in DATABASE_VARIABLES if os.environ.get(name)]
    click.echo("\nLook around in what it left behind:\n")
    if in_the_way:
        click.echo(f"  unset {' '.join(in_the_way)}")
    click.echo(f"  export SERENO_DIRECTORY={directory}")
    commands = {"sereno server": "the dashboard again", "sereno job list --state dead": "the dead letter, with reasons"}
    if ending.job is not None:
        commands[f"sereno why {ending.job}"] = "what became of one of them, in plain words"
    if (told := ending.delivery) is not None:
        commands |= {
            f"sereno delivery show {told.id}": "a message that did not arrive, and what its provider said",
            f"sereno why {told.recipient} {told.event}": "who was told of it, how, and how not",
        }
    width = max(map(len, commands))
    for command, words in (commands | {"sereno verify": "is everything accounted for?"}).items():
        click.echo(f"  {command:<{width}}  # {words}")
