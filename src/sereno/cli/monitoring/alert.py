"""`sereno alert …`: conditions that need an operator, alerts, and the rules that send them."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.notifications.page import OrderedGroup, shown
from sereno.cli.options import MomentType, context_options, output_option
from sereno.cli.output import Column, chosen_form, counted, human_seconds, show_json, show_list
from sereno.errors import InvalidArguments

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.monitoring.alerts.rows import RuleLine

ALERTS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("level", lambda line: line.level, "state"),
    Column("rule", lambda line: line.rule, "name"),
    Column("kind", lambda line: line.kind),
    Column("words", lambda line: shown(line.words), "wide"),
    Column("since", lambda line: line.opened_at),
    Column("notified", lambda line: line.notified_at),
    Column("times", lambda line: line.times, "number"),
    Column("resolved", lambda line: line.resolved_at),
    Column("silenced until", lambda line: line.silenced_until),
)
RULES = (
    Column("name", lambda line: line.name, "name"),
    Column("about", lambda line: shown(_about(line)), "wide"),
    Column("to", lambda line: shown(" ".join(f"{to.channel}={to.address}" for to in line.to)), "wide"),
    Column("level", lambda line: line.level),
    Column("for", lambda line: human_seconds(line.for_seconds or None)),
    Column("again", lambda line: human_seconds(line.again_seconds)),
    Column("enabled", lambda line: line.enabled),
    Column("error", lambda line: shown(line.error or ""), "wide"),
)
CONDITIONS = (
    Column("level", lambda line: line.level),
    Column("kind", lambda line: line.kind),
    Column("words", lambda line: shown(line.words), "wide"),
    Column("since", lambda line: line.since),
    Column("remedy", lambda line: shown(line.remedy)),
)


def _about(line: "RuleLine") -> str:
    parts = [] if line.kinds is None else [", ".join(line.kinds)]
    if line.log is not None:
        parts = [f"{line.log.count} times {line.log.level} {line.log.event or ''} in {human_seconds(line.log.within)}"]
    parts += [f"{name} {value}" for name in ("tenant", "queue", "task") if (value := getattr(line, name))]
    return " ".join(parts) or "everything"


@click.group(cls=OrderedGroup)
def alert() -> None:
    """List alerts, and manage the rules that send them."""


@alert.command(epilog="Example: sereno alert now --tenant r42")
@click.option("--tenant", help="Only conditions of this tenant.")
@click.option(
    "--late", metavar="DURATION", default="60s", show_default=True, help="Longest normal wait of a ready job."
)
@output_option
@context_options
def now(context: "CommandContext", tenant: str | None, late: str, form: str) -> None:
    """List the conditions that need an operator now, most severe first. Sends nothing."""
    from sereno.monitoring.alerts.current_conditions import current_conditions  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(current_conditions(context.settings, tenant=tenant, late=late))
    show_list(form, found, CONDITIONS, empty="No condition needs an operator.")


@alert.command("list", epilog="Example: sereno alert list --open")
@click.option("--open/--past", "is_open", default=None, help="Only open alerts, or only resolved ones.")
@click.option("--rule", help="Only alerts of this rule.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=click.IntRange(1, 2**63 - 1), metavar="ID", help="Only older alerts: the next page.")
@output_option
@context_options
def list_alerts(
    context: "CommandContext", is_open: bool | None, rule: str | None, limit: int, before: int | None, form: str
) -> None:
    """List alerts, newest first."""
    from sereno.monitoring.alerts.operations import list_alerts as operation  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(operation(limit, before, rule=rule, is_open=is_open))
    show_list(form, found, ALERTS, empty="No alerts. List the rules: sereno alert rules")


@alert.command(epilog="Example: sereno alert rules")
@output_option
@context_options
def rules(context: "CommandContext", form: str) -> None:
    """List alert rules. Addresses are masked."""
    from sereno.monitoring.alerts.operations import list_rules  # noqa: PLC0415 - slow to import; --help needs none

    show_list(form, context.run(list_rules()), RULES, empty="No rules. Create one: sereno alert set")


@alert.command("set", epilog="Example: sereno alert set late --kind queue.late --to discord=https://… --for 5m")
@click.argument("name")
@click.option("--to", "targets", multiple=True, required=True, metavar="CHANNEL=ADDRESS", help="Target; repeatable.")
@click.option("--secret", help="Signing secret for webhook targets: whsec_…")
@click.option("--kind", "kinds", multiple=True, help="Kind of condition; repeatable.  [default: all]")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"]),
    help="Match log lines of this level or above.",
)
@click.option("--log-event", metavar="EVENT", help="Match log lines with this event.")
@click.option("--count", type=click.IntRange(1, 1000), default=1, help="Log lines that raise the alert …")
@click.option("--within", metavar="DURATION", default="5m", help="… within this time.")
@click.option("--level", type=click.Choice(["warn", "bad"]), default="warn", show_default=True, help="Lowest level.")
@click.option("--tenant", help="Only this tenant.")
@click.option("--queue", help="Only this queue.")
@click.option("--task", help="Only this task.")
@click.option("--for", "lasting", metavar="DURATION", default="0s", help="Alert when the condition lasts this long.")
@click.option("--again", metavar="DURATION", default="4h", show_default=True, help="Repeat the alert while it is open.")
@click.option("--disabled", is_flag=True, help="Store the rule, but send nothing.")
@click.option("--note")
@output_option
@context_options
def set_rule(context: "CommandContext", form: str, **given: Any) -> None:
    """Create or replace an alert rule."""
    from sereno.monitoring.alerts.operations import set_rule as operation  # noqa: PLC0415 - see above
    from sereno.monitoring.alerts.rule import checked  # noqa: PLC0415 - slow to import; --help needs none

    app = context.app_or_none()
    check = checked if app is None else app.alerts.checked
    line = context.run(operation(_rule(given), check=check))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(line, indent=2 if form == "json" else 0)
        return
    click.echo(
        f"{shown(line.name)}: {shown(_about(line))}, sent to {counted(len(line.to), 'target')}. "
        f"Try it: sereno alert test {line.name}"
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
            raise InvalidArguments("--to must be CHANNEL=ADDRESS, such as --to discord=https://…")
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
    """Remove an alert rule and resolve its open alerts."""
    from sereno.monitoring.alerts.operations import remove_rule  # noqa: PLC0415 - slow to import; --help needs none

    if not context.run(remove_rule(name)):
        raise InvalidArguments(f"no alert rule {name!r:.60}: see sereno alert rules")
    click.echo(f"Removed the alert rule {shown(name)}.", err=True)


@alert.command(epilog="Example: sereno alert test late")
@click.argument("name")
@context_options
def test(context: "CommandContext", name: str) -> None:
    """Send a test message to each target of a rule; print the ids of the jobs that send them."""
    from sereno.monitoring.alerts.operations import try_rule  # noqa: PLC0415 - slow to import; --help needs none

    for job in context.run(try_rule(name)):
        click.echo(job)


@alert.command(epilog="Example: sereno alert silence 17 --until 2h")
@click.argument("number", type=click.IntRange(1, 2**63 - 1), metavar="ID")
@click.option("--until", type=MomentType(future=True), help='A date, or a duration from now such as "2h".')
@click.option("--off", is_flag=True, help="End the silence.")
@context_options
def silence(context: "CommandContext", number: int, until: datetime | None, off: bool) -> None:
    """Silence an open alert until a time: neither the alert nor its end is sent."""
    from sereno.monitoring.alerts.operations import silence as operation  # noqa: PLC0415 - slow to import; --help needs none

    if (until is None) != off:
        raise InvalidArguments("pass --until, such as --until 2h, or --off")
    if context.run(operation(number, until)) is None:
        raise InvalidArguments(f"no open alert {number}: see sereno alert list --open")
    click.echo(f"Alert {number} is not silenced any more." if off else f"Alert {number} is silenced.", err=True)
