"""`sereno schedule add` and `preview`: create a schedule, or preview the instants of a rule."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import chosen_form, show_json
from sereno.cli.schedules.options import MomentsType, as_rule, rule_options
from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import tzinfo

    from sereno.cli.context import CommandContext
    from sereno.schedules.importers.definition import MakeJob
    from sereno.schedules.rows import UpsertResult
    from sereno.schedules.rules.when import When
    from sereno.schedules.schedule import NewSchedule

POLICIES = (
    "missed",
    "missed_limit",
    "missed_window",
    "overlap",
    "max_lateness",
    "max_fires",
    "disable_after",
    "expires_after",
)


@click.command(
    epilog="""Example: sereno schedule add reconcile:r42 --task reconcile --tenant r42 --daily 03:00 \
--tz America/Sao_Paulo --args '{"account": "r42", "month": "{fire:%Y-%m}"}' -a shop:app"""
)
@click.argument("key")
@click.option("-t", "--task", required=True)
@click.option(
    "--args", "arguments", default="{}", metavar="JSON", help='Arguments as one JSON object; "-" reads it from stdin.'
)
@rule_options
@click.option("--tenant")
@click.option("-q", "--queue")
@click.option("-p", "--priority", type=click.IntRange(0, 9), help="0 runs first, 9 runs last.")
@click.option("--tag", "tags", multiple=True, help="Repeatable.")
@click.option("--unique-key", help='Unique key of the jobs, such as "{key}:{fire:%Y-%m}" for one per month.')
@click.option("--unique-for", metavar="DURATION", help="live, forever, or a duration.  [default: live]")
@click.option("--missed", type=click.Choice(["skip", "latest", "all"]), help="Policy for instants that were missed.")
@click.option(
    "--missed-limit", type=click.IntRange(1), metavar="N", help="Most missed instants to run.  [default: 100]"
)
@click.option("--missed-window", metavar="DURATION", help="Oldest missed instant to run.  [default: 24h]")
@click.option(
    "--overlap",
    type=click.Choice(["skip", "allow", "queue_one", "cancel_previous"]),
    help="Policy while the previous run is active.",
)
@click.option("--max-lateness", metavar="DURATION", help="Skip an instant that is later than this.")
@click.option("--expires-after", metavar="DURATION", help="Do not start a job that has waited longer.")
@click.option("--starts", metavar="DATE", help="First possible instant, in the zone of --tz.")
@click.option("--ends", metavar="DATE", help="Last possible instant.")
@click.option("--max-fires", type=click.IntRange(1), metavar="N")
@click.option("--disable-after", type=click.IntRange(1), metavar="N", help="Disable it after N failed runs in a row.")
@click.option("--unchecked", is_flag=True, help="Do not check the job with an application.")
@output_option
@context_options
def add(
    context: "CommandContext", key: str, task: str, arguments: str, unchecked: bool, form: str, **options: Any
) -> None:
    """Create or replace the schedule with this key."""
    from sereno.schedules.bulk_write import DescribedSchedule, write  # noqa: PLC0415 - slow to import; --help needs none

    raw = sys.stdin.buffer.read() if arguments == "-" else arguments.encode(errors="surrogateescape")
    described = _described(key, task, raw, job_maker(context, unchecked), options)
    context.connection(create=True)
    (made,) = context.run(write([DescribedSchedule(described)]))
    _report_made(context, described.when, _clock(options["rule"], described.when), made, form)


def job_maker(context: "CommandContext", unchecked: bool) -> "MakeJob":
    """Return the function that builds a job: one that checks it with the application, or one that does not."""
    from sereno.schedules.bulk_write import unchecked_job  # noqa: PLC0415 - slow to import; --help needs none

    if context.settings.app and not unchecked:
        return context.app.new_job
    if not unchecked:
        raise ConfigurationError(
            "checking the job needs your application: name it with -a module:attr, or set SERENO_APP; "
            "or pass --unchecked"
        )
    return unchecked_job


def _described(key: str, task: str, raw: bytes, make_job: "MakeJob", options: dict[str, Any]) -> "NewSchedule":
    from sereno.jobs.job import JobOptions  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.schedule import NewSchedule  # noqa: PLC0415 - see above
    from sereno.zones import zone  # noqa: PLC0415 - see above

    rule = options["rule"]
    when = as_rule(rule)
    clock = zone(rule["tz"] or "UTC").info
    names = ("tenant", "queue", "priority", "tags", "unique_key", "unique_for")
    given = {name: options[name] for name in names if options[name] is not None}
    policies = {name: options[name] for name in POLICIES if options[name] is not None}
    for name in ("starts", "ends"):
        if options[name] is not None:
            policies[f"{name}_at"] = MomentsType(f"--{name}", clock).read(options[name])
    return NewSchedule(key=key, job=make_job(task, raw, JobOptions(**given)), when=when, **policies).checked()


def _clock(rule: dict[str, Any], when: "When") -> "tzinfo":
    """Return the zone to show times in: --tz, or that of the rule. A rule of --at stores no zone."""
    from sereno.schedules.lists import clock_of  # noqa: PLC0415 - see above
    from sereno.schedules.operations import decode_object  # noqa: PLC0415 - see above
    from sereno.zones import zone  # noqa: PLC0415 - slow to import; --help needs none

    return zone(rule["tz"]).info if rule["tz"] else clock_of(decode_object(when))


def _report_made(context: "CommandContext", when: "When", shown_on: "tzinfo", made: "UpsertResult", form: str) -> None:
    from msgspec.structs import asdict  # noqa: PLC0415 - slow to import

    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import
    from sereno.cli.schedules.text import full_time, relative  # noqa: PLC0415 - slow to import
    from sereno.database.clock import clock  # noqa: PLC0415 - see above
    from sereno.schedules.rules.when import describe  # noqa: PLC0415 - see above
    from sereno.zones import moment  # noqa: PLC0415 - see above

    if chosen_form(form) in ("json", "jsonl"):
        show_json(asdict(made) | {"when": describe(when)}, indent=2 if form == "json" else 0)
        return
    result = {"created": "Created", "changed": "Changed", "unchanged": "Unchanged"}[made.what]
    click.echo(f"{result}: {visible(made.key)}, {describe(when)}.")
    if made.next_run_at is None:
        click.echo(f"It is {made.state}: no next run.")
    else:
        now = moment(context.run(clock()))
        click.echo(f"Next: {full_time(made.next_run_at, shown_on)}, {relative(made.next_run_at, now)}.")


@click.command(epilog='Example: sereno schedule preview "30 3 * * *" --tz Europe/Riga --after 2027-03-27')
@click.argument("expression", required=False)
@rule_options
@click.option("-n", "--count", default=5, show_default=True, type=click.IntRange(1, 1000))
@click.option("--after", metavar="DATE", help="First time to consider, in the zone of --tz.  [default: now]")
@click.option("--key", help="Use the spread offset of this key.")
@output_option
@click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def preview(
    expression: str | None, rule: dict[str, Any], count: int, after: str | None, key: str | None, form: str
) -> None:
    """Show when a rule would fire, with notes on clock changes. Needs no database."""
    from sereno.cli.schedules import text  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.schedules.lists import upcoming_fires  # noqa: PLC0415 - see above
    from sereno.schedules.rules.preview import preview as upcoming  # noqa: PLC0415 - see above
    from sereno.schedules.rules.when import describe  # noqa: PLC0415 - see above
    from sereno.schedules.schedule import shift  # noqa: PLC0415 - see above
    from sereno.text import check_text  # noqa: PLC0415 - see above

    if expression is not None:
        if rule["cron"] is not None:
            raise click.UsageError("A cron expression is given twice.")
        rule = rule | {"cron": expression}
    when = as_rule(rule)
    check_text("key", key)
    clock, now = _clock(rule, when), datetime.now(UTC)
    start = now if after is None else MomentsType("--after", clock, now=now).read(after)
    offset = shift(key, when) if key else 0
    found = [each._replace(local=each.at.astimezone(clock)) for each in upcoming(when, start, count, offset)]
    if chosen_form(form) in ("json", "jsonl"):
        instants = upcoming_fires(found)
        show_json({"when": describe(when), "upcoming": instants}, indent=2 if form == "json" else 0)
        return
    click.echo(text.headline(key or "", when, offset, ""))
    for line in text.instant_lines(found, clock, now, late="ago"):
        click.echo(f"  {line}")
    if not found:
        click.echo("  No next run.")
