"""The front door: `sereno <noun> <verb>`. Commands are imported when they are asked for, so that it opens quickly."""

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from sereno.cli.failures import exit_code, explained
from sereno.version import __version__

# Name: where it lives, what it does. The words are here so that --help imports nothing.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("sereno.cli.demo:demo", "See it work: a database, five systems and the dashboard"),
        "init": ("sereno.cli.init:init", "Lay out a small project that works, with tests that pass"),
        "worker": ("sereno.cli.services.worker:worker", "Run jobs; `worker list` shows who does"),
        "scheduler": ("sereno.cli.services.scheduler:scheduler", "Fire schedules, where there is no worker to do it"),
        "run": ("sereno.cli.services.run:run", "Worker, scheduler and server as one service, for small installations"),
        "server": ("sereno.cli.services.server:server", "Answer people and programs over HTTP"),
        "migrate": ("sereno.cli.migrate:migrate", "Bring the database schema up to date"),
    },
    "Look": {
        "status": ("sereno.cli.monitoring.status:status", "Everything on one screen"),
        "top": ("sereno.cli.monitoring.top:top", "The same, live"),
        "why": ("sereno.cli.jobs.why:why", "Why a job is not running, or somebody was not told, in plain words"),
        "error": ("sereno.cli.monitoring.error:error", "What breaks, since when, for whom: list, show, mute"),
        "log": ("sereno.cli.monitoring.log:log", "What handlers and the engine had to say: list, show"),
        "alert": ("sereno.cli.monitoring.alert:alert", "What needs a person, and who is told: now, list, rules, set …"),
        "trace": ("sereno.cli.monitoring.trace:trace", "What one cause brought about, as lines of time"),
        "doctor": ("sereno.cli.monitoring.doctor:doctor", "Look for trouble, and say what helps"),
        "verify": ("sereno.cli.monitoring.verify:verify", "Prove the invariants on the live database"),
    },
    "Change": {
        "job": ("sereno.cli.jobs.jobs:job", "list, show, enqueue, retry, cancel, delete"),
        "operation": ("sereno.cli.jobs.operation:operation", "Bulk changes in the background: list, show, stop"),
        "schedule": (
            "sereno.cli.schedules.schedules:schedule",
            "list, show, add, preview, pause, run, backfill, import, heatmap …",
        ),
        "procedure": (
            "sereno.cli.procedures.procedure:procedure",
            "Stored procedures that jobs may call: allow, list, check, run …",
        ),
        "queue": ("sereno.cli.jobs.queues:queue", "list, pause, resume"),
        "limit": ("sereno.cli.jobs.limits:limit", "list, show, set, reset, close, open, weigh, weights"),
    },
    "Notify": {
        "event": ("sereno.cli.notifications.event:event", "list, show, notify"),
        "delivery": ("sereno.cli.notifications.delivery:delivery", "list, show, requeue"),
        "recipient": ("sereno.cli.notifications.recipient:recipient", "list, show, set, prefer, unsubscribe, delete"),
        "channel": ("sereno.cli.notifications.channel:channel", "list, pause, resume"),
        "template": ("sereno.cli.notifications.template:template", "list, show, set, delete, preview, lint"),
    },
    "Archive": {
        "archive": (
            "sereno.cli.archive.archive:archive",
            "What is old: status, list, run, verify, query, restore, export",
        ),
    },
    "About": {
        "token": ("sereno.cli.access.token:token", "Who may ask the server: create, list, revoke"),
        "config": ("sereno.cli.config:config", "Settings, with where each came from"),
        "version": ("sereno.cli.version:version", "The version of sereno"),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
# What a shell says of a program that Ctrl-C ended.
INTERRUPTED = 130


class CommandLine(click.Group):
    """Finds commands by import path, and turns every error into a line or two and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's own signature
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's own signature
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, words) for name, (_, words) in entries.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read our output has seen enough. Python would complain again at exit, so give it another one.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return answer

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


def _shown(words: str) -> str:
    """Line by line: an error may quote what anybody wrote, and a terminal obeys some of it."""
    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import; --help needs none

    return "\n".join(visible(line) for line in words.split("\n"))


def _wants_traceback(arguments: Sequence[str]) -> bool:
    return os.environ.get("SERENO_LOG_LEVEL", "").lower() == "debug" or bool({"-v", "--verbose"} & set(arguments))


@click.group(
    cls=CommandLine,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Try it first: sereno demo",
)
@click.version_option(__version__, "--version", message="sereno %(version)s")
def main() -> None:
    """Durable jobs on the PostgreSQL you already run."""
