"""`sereno alert …`: what needs a person, and who is told."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.notifications.page import OrderedGroup, shown
from sereno.cli.options import Moment, context_options, output_option
from sereno.cli.output import Column, chosen_form, human_seconds, show_json, show_list
from sereno.errors import InvalidArguments

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.monitoring.alerts.operations import RuleLine

ALERTS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("level", lambda line: line.level, "state"),
    Column("rule", lambda line: line.rule),
    Column("kind", lambda line: line.kind),
    Column("words", lambda line: shown(line.words), "wide"),
    Column("since", lambda line: line.opened_at),
    Column("told", lambda line: line.told_at),
    Column("times", lambda line: line.times, "number"),
    Column("over", lambda line: line.resolved_at),
    Column("silenced until", lambda line: line.silenced_until),
)
RULES = (
    Column("name", lambda line: line.name),
    Column("about", lambda line: shown(_about(line)), "wide"),
    Column("to", lambda line: shown(" ".join(f"{to.channel}={to.address}" for to in line.to)), "wide"),
    Column("level", lambda line: line.level),
    Column("for", lambda line: human_seconds(line.for_seconds or None)),
    Column("again", lambda line: human_seconds(line.again_seconds)),
    Column("enabled", lambda line: line.enabled),
    Column("error", lambda line: shown(line.error or ""), "wide"),
)
CONCERNS = (
    Column("level", lambda line: line["level"]),
    Column("kind", lambda line: line["kind"]),
    Column("words", lambda line: shown(line["words"]), "wide"),
    Column("since", lambda line: line["since"]),
    Column("what helps", lambda line: shown(line["remedy"])),
)


def _about(line: "RuleLine") -> str:
    parts = [] if line.kinds is None else [", ".join(line.kinds)]
    if line.log is not None:
        parts = [f"{line.log.count} times {line.log.level} {line.log.event or ''} in {human_seconds(line.log.within)}"]
    parts += [f"{name} {value}" for name in ("tenant", "queue", "task") if (value := getattr(line, name))]
    return " ".join(parts) or "everything"


@click.group(cls=OrderedGroup)
def alert() -> None:
    """What needs a person, and who is told."""


@alert.command(epilog="Example: sereno alert now --tenant r42")
@click.option("--tenant", help="Of this tenant alone.")
@click.option("--late", metavar="DURATION", default="60s", show_default=True, help="So long a ready job may wait.")
@output_option
@context_options
def now(context: "CommandContext", tenant: str | None, late: str, form: str) -> None:
    """Everything that needs a person right now, the worst first."""
    import msgspec  # noqa: PLC0415 - slow to import; --help needs none

    from sereno.monitoring.alerts.current_conditions import attention  # noqa: PLC0415 - see above

    found = context.run(attention(context.settings, tenant=tenant, late=late))
    lines = [msgspec.to_builtins(each, builtin_types=(datetime,)) | {"words": each.words} for each in found]
    show_list(form, lines, CONCERNS, empty="Nothing needs a person.")


@alert.command("list", epilog="Example: sereno alert list --open")
@click.option("--open/--past", "is_open", default=None, help="Only what lasts, or only what is over.")
@click.option("--rule", help="Of this rule alone.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=click.IntRange(1, 2**63 - 1), metavar="ID", help="Older ones only: the next page.")
@output_option
@context_options
def list_alerts(
    context: "CommandContext", is_open: bool | None, rule: str | None, limit: int, before: int | None, form: str
) -> None:
    """What rules have found, newest first."""
    from sereno.monitoring.alerts.operations import list_alerts as operation  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(operation(limit, before, rule=rule, is_open=is_open))
    show_list(form, found, ALERTS, empty="No alert: sereno alert rules shows who would be told of what.")


@alert.command(epilog="Example: sereno alert rules")
@output_option
@context_options
def rules(context: "CommandContext", form: str) -> None:
    """Who is told of what. Addresses are masked."""
    from sereno.monitoring.alerts.operations import list_rules  # noqa: PLC0415 - slow to import; --help needs none

    show_list(form, context.run(list_rules()), RULES, empty="There is no rule: sereno alert set")


@alert.command("set", epilog="Example: sereno alert set late --kind queue.late --to discord=https://… --for 5m")
@click.argument("name")
@click.option("--to", "targets", multiple=True, required=True, metavar="CHANNEL=ADDRESS", help="Repeatable.")
@click.option("--secret", help="What signs messages to the webhooks among them: whsec_…")
@click.option("--kind", "kinds", multiple=True, help="Repeatable; without it, all of them.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error", "critical"]))
@click.option("--log-event", metavar="EVENT", help="Over lines of the log instead: of this event.")
@click.option("--count", type=click.IntRange(1, 1000), default=1, help="So many lines of the log,")
@click.option("--within", metavar="DURATION", default="5m", help="within so long.")
@click.option("--level", type=click.Choice(["warn", "bad"]), default="warn", show_default=True, help="At least.")
@click.option("--tenant", help="Of this tenant alone.")
@click.option("--queue", help="Of this queue alone.")
@click.option("--task", help="Of this task alone.")
@click.option("--for", "lasting", metavar="DURATION", default="0s", help="Only what lasts so long.")
@click.option("--again", metavar="DURATION", default="4h", show_default=True, help="Tell again, while it lasts.")
@click.option("--disabled", is_flag=True, help="Keep it, and tell nobody.")
@click.option("--note")
@output_option
@context_options
def set_rule(context: "CommandContext", form: str, **given: Any) -> None:
    """Make a rule, or change the one of this name to be so."""
    from sereno.monitoring.alerts.operations import set_rule as operation  # noqa: PLC0415 - see above
    from sereno.monitoring.alerts.rule import checked  # noqa: PLC0415 - slow to import; --help needs none

    app = context.app_or_none()
    check = checked if app is None else app.alerts.checked
    line = context.run(operation(_rule(given), check=check))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(line, indent=2 if form == "json" else 0)
        return
    click.echo(
        f"{shown(line.name)}: {shown(_about(line))} is told to {len(line.to)}. Try: sereno alert test {line.name}"
    )


def _rule(given: dict[str, Any]) -> Any:
    from sereno.duration import seconds  # noqa: PLC0415 - see above
    from sereno.monitoring.alerts.rule import AlertRule, AlertTarget, LogRule  # noqa: PLC0415 - slow to import; --help needs none

    log = None
    if given["log_event"] is not None or given["log_level"] is not None:
        log = LogRule(
            level=given["log_level"] or "debug",
            event=given["log_event"],
            count=given["count"],
            within=seconds(given["within"]),
        )
    targets = []
    for text in given["targets"]:
        channel, separator, address = text.partition("=")
        if not separator:
            raise InvalidArguments("--to is a channel and an address: --to discord=https://…")
        keys = {"secrets": [given["secret"]]} if given["secret"] and channel == "webhook" else {}
        targets.append(AlertTarget(channel=channel, address=address, keys=keys))
    named = {name: given[name] for name in ("name", "level", "tenant", "queue", "task", "note")}
    return AlertRule(
        **named,
        targets=targets,
        kinds=list(given["kinds"]) or None,
        log=log,
        for_seconds=seconds(given["lasting"]),
        again_seconds=seconds(given["again"]),
        enabled=not given["disabled"],
    )


@alert.command(epilog="Example: sereno alert remove late")
@click.argument("name")
@context_options
def remove(context: "CommandContext", name: str) -> None:
    """It tells nobody any more; what it had open is over."""
    from sereno.monitoring.alerts.operations import remove_rule  # noqa: PLC0415 - slow to import; --help needs none

    if not context.run(remove_rule(name)):
        raise InvalidArguments(f"there is no alert rule {name!r:.60}: sereno alert rules")
    click.echo(f"The alert rule {shown(name)} is gone.", err=True)


@alert.command(epilog="Example: sereno alert test late")
@click.argument("name")
@context_options
def test(context: "CommandContext", name: str) -> None:
    """Send a message to each target that says it is a test; print the jobs that send them."""
    from sereno.monitoring.alerts.operations import try_rule  # noqa: PLC0415 - slow to import; --help needs none

    for job in context.run(try_rule(name)):
        click.echo(job)


@alert.command(epilog="Example: sereno alert silence 17 --until 2h")
@click.argument("number", type=click.IntRange(1, 2**63 - 1), metavar="ID")
@click.option("--until", type=Moment(future=True), help='"2h" from now, or a date.')
@click.option("--off", is_flag=True, help="Tell of it again.")
@context_options
def silence(context: "CommandContext", number: int, until: datetime | None, off: bool) -> None:
    """Tell nobody of an open alert before a time, nor of its end."""
    from sereno.monitoring.alerts.operations import silence as operation  # noqa: PLC0415 - slow to import; --help needs none

    if (until is None) != off:
        raise InvalidArguments("say until when, with --until, or --off")
    if context.run(operation(number, until)) is None:
        raise InvalidArguments(f"there is no open alert {number}: sereno alert list --open")
    click.echo(f"Alert {number} is told again." if off else f"Nobody is told of alert {number} for now.", err=True)
