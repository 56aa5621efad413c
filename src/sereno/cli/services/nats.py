"""`sereno run --nats`: a NATS server for development, and the queues that it carries."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from sereno.app import Sereno
from sereno.carriers.address import carried_queue
from sereno.carriers.project_server import ProjectNats
from sereno.errors import ConfigurationError
from sereno.worker.supervisor import CHILD_VARIABLE

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "SERENO_CARRIERS"


def nats_options(function: F) -> F:
    """Add the options of commands that can start a NATS server."""
    for option in (
        click.option("--carry", "carried", multiple=True, metavar="QUEUE", help="Carry this queue by it; repeatable."),
        click.option("--nats", is_flag=True, help="Start a NATS server under .sereno/ for carried queues."),
    ):
        function = option(function)
    return function


@contextmanager
def project_nats(app: Sereno, queues: Sequence[str], *, is_wanted: bool) -> Iterator[None]:
    """Run a NATS server of the project meanwhile, and let it carry queues: `queues`, or those that the code declares.

    A declared carrier is replaced by this server, and the output says so.
    """
    # A child process gets the queues with its environment.
    if not (is_wanted or queues) or CHILD_VARIABLE in os.environ:
        yield
        return
    names = list(dict.fromkeys(queues)) or list(app.registry.carried)
    if not names:
        raise ConfigurationError(
            "--nats: the application declares no carried queue; name one of its queues: --nats --carry clicks"
        )
    server, process = ProjectNats(Path(app.settings.directory)), os.getpid()
    server.start()
    try:
        for line in _carry(app, names, server):
            click.echo(line)
        yield
    finally:
        # Forked children pass here too when they end.
        if os.getpid() == process:
            server.stop()


def _carry(app: Sereno, names: Sequence[str], server: ProjectNats) -> Iterator[str]:
    """Carry the queues by this server, in this process and its children; return what was done, in words."""
    before = app.registry.carried
    declared = {name: f" (instead of {before[name].carrier.description})" for name in names if name in before}
    urls = {
        name: f"jetstream://{server.address}" + ("?direct=true" if name in before and before[name].direct else "")
        for name in names
    }
    others = {name: url for name, url in (app.settings.carriers or {}).items() if name not in urls}
    app.override(carriers=others | urls)
    for name, url in urls.items():
        app.registry.carry(carried_queue(name, url))
    text = msgspec.json.encode(others | urls).decode()
    os.environ[VARIABLE] = text
    yield f"NATS JetStream runs at nats://{server.address}; its files are in {server.directory}."
    carried = ", ".join(f"{name}{declared.get(name, '')}" for name in names)
    yield f"It carries {'the queue' if len(names) == 1 else 'the queues'} {carried}. For other processes:"
    yield f"  export {VARIABLE}='{msgspec.json.encode(urls).decode()}'"
