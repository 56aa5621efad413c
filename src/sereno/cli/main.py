"""The entry point `sereno GROUP COMMAND`. Commands are imported on use, so that --help starts quickly."""

import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import click

from sereno.cli.failures import exit_code, explained
from sereno.version import __version__

# Name -> (import path, summary). The summaries are here so that --help imports no command.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("sereno.cli.demo:demo", "Run a live demo: a database, five example systems and the dashboard"),
        "init": ("sereno.cli.init:init", "Create a small working project with tests"),
        "worker": ("sereno.cli.services.worker:worker", "Run jobs; `worker list` shows the workers"),
        "scheduler": ("sereno.cli.services.scheduler:scheduler", "Fire schedules on a host without workers"),
        "run": ("sereno.cli.services.run:run", "Run worker, scheduler and server as one service"),
        "server": ("sereno.cli.services.server:server", "Serve the dashboard and the HTTP API"),
        "mcp": ("sereno.cli.services.mcp:mcp", "Let an assistant read and operate a server, over MCP"),
        "migrate": ("sereno.cli.migrate:migrate", "Bring the database schema up to date"),
    },
    "Inspect": {
        "status": ("sereno.cli.monitoring.status:status", "Show workers, scheduler, queues and pauses"),
        "top": ("sereno.cli.monitoring.top:top", "Show live queues, rates, workers and failures"),
        "why": ("sereno.cli.jobs.why:why", "Explain why a job is not running or a recipient was not notified"),
        "error": ("sereno.cli.monitoring.error:error", "Failures grouped by cause: list, show, mute"),
        "log": ("sereno.cli.monitoring.log:log", "Log lines of handlers and the engine: list, show"),
        "alert": ("sereno.cli.monitoring.alert:alert", "Alerts and alert rules: now, list, rules, set …"),
        "trace": ("sereno.cli.monitoring.trace:trace", "Show the timeline of a trace"),
        "autoscale-metrics": (
            "sereno.cli.services.autoscale:autoscale_metrics",
            "Print how many workers queues need, or serve it for KEDA",
        ),
        "doctor": ("sereno.cli.monitoring.doctor:doctor", "Find problems and suggest fixes"),
        "verify": ("sereno.cli.monitoring.verify:verify", "Check the invariants on the live database"),
    },
    "Change": {
        "job": ("sereno.cli.jobs.jobs:job", "list, show, enqueue, retry, cancel, delete"),
        "group": ("sereno.cli.jobs.groups:group", "Groups of jobs: list, show, cancel"),
        "operation": ("sereno.cli.jobs.operation:operation", "Bulk operations in the background: list, show, stop"),
        "schedule": (
            "sereno.cli.schedules.schedules:schedule",
            "list, show, add, preview, pause, run, backfill, import, heatmap …",
        ),
        "procedure": (
            "sereno.cli.procedures.procedure:procedure",
            "Stored procedures that jobs may call: allow, list, check, run …",
        ),
        "queue": ("sereno.cli.jobs.queues:queue", "list, show, pause, resume, carry"),
        "signal": ("sereno.cli.jobs.signal:signal", "Signals that jobs wait for: send, list"),
        "limit": ("sereno.cli.jobs.limits:limit", "list, show, set, reset, close, open, weigh, weights"),
    },
    "Notify": {
        "event": ("sereno.cli.notifications.event:event", "list, show, notify, cancel"),
        "delivery": ("sereno.cli.notifications.delivery:delivery", "list, show, requeue"),
        "recipient": ("sereno.cli.notifications.recipient:recipient", "list, show, set, prefer, unsubscribe, delete"),
        "topic": ("sereno.cli.notifications.topic:topic", "list, show, subscribe, unsubscribe"),
        "channel": ("sereno.cli.notifications.channel:channel", "list, pause, resume"),
        "template": ("sereno.cli.notifications.template:template", "list, show, set, delete, preview, lint"),
    },
    "Archive": {
        "archive": (
            "sereno.cli.archive.archive:archive",
            "Archived rows: status, list, run, verify, query, restore, export",
        ),
    },
    "About": {
        "token": ("sereno.cli.access.token:token", "API tokens: create, list, revoke"),
        "key": ("sereno.cli.access.key:key", "Keys of encrypted arguments: new"),
        "config": ("sereno.cli.config:config", "Show settings and where each one comes from"),
        "version": ("sereno.cli.version:version", "Print the version of sereno"),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
# 128 + SIGINT, the exit code that shells report after Ctrl-C.
INTERRUPTED = 130


class CommandLine(click.Group):
    """Imports commands by path, and turns every error into one or two lines and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's own signature
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(_import(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415 - only for an error

            # click looks for similar names only among commands that are imported.
            near = get_close_matches(name, COMMANDS, 1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's own signature
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, words) for name, (_, words) in entries.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of the pipe has closed it. Python flushes stdout again at exit: point it at /dev/null.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return result

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        try:
            colour = {"color": False} if os.environ.get("NO_COLOR") else {}
            code = super().main(given, *rest, **named | colour | {"standalone_mode": False})
        except click.exceptions.Abort:
            click.echo("Stopped.", err=True)
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            words = io.StringIO()
            error.show(words)
            click.echo(_shown(words.getvalue()), nl=False, err=True)
            sys.exit(error.exit_code)
        except Exception as error:
            if _wants_traceback(given):
                raise
            click.echo(f"Error: {_shown(explained(error))}", err=True)
            sys.exit(exit_code(error))
        sys.exit(code if isinstance(code, int) else 0)


def _import(name: str) -> ModuleType:
    """Import a module without garbage collections: they would find nothing, and take a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if was_enabled:
            gc.enable()


def _shown(words: str) -> str:
    """Escape control characters line by line: an error may quote user input with terminal sequences."""
    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import; --help needs none

    return "\n".join(visible(line) for line in words.split("\n"))


def _wants_traceback(arguments: Sequence[str]) -> bool:
    return os.environ.get("SERENO_LOG_LEVEL", "").lower() == "debug" or bool({"-v", "--verbose"} & set(arguments))


@click.group(
    cls=CommandLine,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="To see it work: sereno demo",
)
@click.version_option(__version__, "--version", message="sereno %(version)s")
def main() -> None:
    """Schedules, jobs and notifications on the PostgreSQL you already run."""
