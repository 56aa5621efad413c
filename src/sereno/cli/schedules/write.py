"""`sereno schedule add` and `preview`: a schedule from the command line, and a rule to look at before it is one."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import context_options, output_option
from sereno.cli.output import chosen_form, show_json
from sereno.cli.schedules.options import Moments, as_rule, rule_options
from sereno.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import tzinfo

    from sereno.cli.context import CommandContext
    from sereno.schedules.importers.definition import MakeJob
    from sereno.schedules.rules.when import When
    from sereno.schedules.schedule import NewSchedule
    from sereno.schedules.store import UpsertResult

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
@click.option("--args", "arguments", default="{}", metavar="JSON", help='One JSON object; "-" reads it from stdin.')
@rule_options
@click.option("--tenant")
@click.option("-q", "--queue")
@click.option("-p", "--priority", type=click.IntRange(0, 9), help="0 is first, 9 is last.")
@click.option("--tag", "tags", multiple=True, help="Repeatable.")
@click.option("--unique-key", help='Such as "{key}:{fire:%Y-%m}": once a month.')
@click.option("--unique-for", metavar="DURATION", help="live, forever, or so long.  [default: live]")
@click.option("--missed", type=click.Choice(["skip", "latest", "all"]), help="What nobody was there to fire.")
@click.option("--missed-limit", type=click.IntRange(1), metavar="N", help="At most so many at once.  [default: 100]")
@click.option("--missed-window", metavar="DURATION", help="None that are older.  [default: 24h]")
@click.option(
    "--overlap",
    type=click.Choice(["skip", "allow", "queue_one", "cancel_previous"]),
    help="While the run before goes on.",
)
@click.option("--max-lateness", metavar="DURATION", help="Skipped when it is later.")
@click.option("--expires-after", metavar="DURATION", help="A job that waits longer is not started.")
@click.option("--starts", metavar="DATE", help="Nothing before; on the clock of --tz.")
@click.option("--ends", metavar="DATE", help="Nothing after.")
@click.option("--max-fires", type=click.IntRange(1), metavar="N")
@click.option("--disable-after", type=click.IntRange(1), metavar="N", help="So many failed runs in a row.")
@click.option("--unchecked", is_flag=True, help="Without an application that knows the task.")
@output_option
@context_options
def add(
    context: "CommandContext", key: str, task: str, arguments: str, unchecked: bool, form: str, **options: Any
) -> None:
    """Make a schedule, or change the one of this key to be so."""
    from sereno.schedules.bulk_write import DescribedSchedule, write  # noqa: PLC0415 - slow to import; --help needs none

    raw = sys.stdin.buffer.read() if arguments == "-" else arguments.encode(errors="surrogateescape")
    described = _described(key, task, raw, job_maker(context, unchecked), options)
    context.connection(create=True)
    (made,) = context.run(write([DescribedSchedule(described)]))
    _tell_made(context, described.when, _clock(options["rule"], described.when), made, form)


def job_maker(context: "CommandContext", unchecked: bool) -> "MakeJob":
    """Checks the job with the application, if there is one."""
    from sereno.schedules.bulk_write import unchecked_job  # noqa: PLC0415 - slow to import; --help needs none

    if context.settings.app and not unchecked:
        return context.app.new_job
    if not unchecked:
        raise ConfigurationError(
            "the job is checked with your application: name it with -a module:attr, or set SERENO_APP; "
            "or say --unchecked"
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
            policies[f"{name}_at"] = Moments(f"--{name}", clock).read(options[name])
    return NewSchedule(key=key, job=make_job(task, raw, JobOptions(**given)), when=when, **policies).checked()


def _clock(rule: dict[str, Any], when: "When") -> "tzinfo":
    """The clock that was named. A single moment keeps none, and is shown on the one that it was written for."""
    from sereno.schedules.lists import clock_of  # noqa: PLC0415 - see above
    from sereno.schedules.operations import decode_object  # noqa: PLC0415 - see above
    from sereno.zones import zone  # noqa: PLC0415 - slow to import; --help needs none

    return zone(rule["tz"]).info if rule["tz"] else clock_of(decode_object(when))


def _tell_made(context: "CommandContext", when: "When", shown_on: "tzinfo", made: "UpsertResult", form: str) -> None:
    from sereno.cli.output import visible  # noqa: PLC0415 - slow to import
    from sereno.cli.schedules.text import full_time, relative  # noqa: PLC0415 - slow to import
    from sereno.schedules.rules.when import describe  # noqa: PLC0415 - see above
    from sereno.schedules.store import clock  # noqa: PLC0415 - see above
    from sereno.zones import moment  # noqa: PLC0415 - see above

    at = None if made.next_run_at is None else moment(made.next_run_at)
    if chosen_form(form) in ("json", "jsonl"):
        found = {"id": made.id, "key": made.key, "what": made.what, "state": made.state, "next_run_at": at}
        show_json(found | {"when": describe(when)}, indent=2 if form == "json" else 0)
        return
    words = {"created": "Created", "changed": "Changed", "unchanged": "Unchanged"}[made.what]
    click.echo(f"{words}: {visible(made.key)}, {describe(when)}.")
    if at is None:
        click.echo(f"It is {made.state}: nothing is to come.")
    else:
        now = moment(context.run(clock()))
        click.echo(f"Next: {full_time(at, shown_on)}, {relative(at, now)}.")


@click.command(epilog='Example: sereno schedule preview "30 3 * * *" --tz Europe/Riga --after 2027-03-27')
@click.argument("expression", required=False)
@rule_options
@click.option("-n", "--count", default=5, show_default=True, type=click.IntRange(1, 1000))
@click.option("--after", metavar="DATE", help="From there on, on the clock of --tz.  [default: now]")
@click.option("--key", help="The place in the spread of the schedule with this key.")
@output_option
@click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Show where an error comes from.")
def preview(
    expression: str | None, rule: dict[str, Any], count: int, after: str | None, key: str | None, form: str
) -> None:
    """When a rule would run. With a note where its clock is turned; needs no database."""
    from sereno.cli.schedules import text as words  # noqa: PLC0415 - slow to import; --help needs none
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
    start = now if after is None else Moments("--after", clock, now=now).read(after)
    offset = shift(key, when) if key else 0
    found = [each._replace(local=each.at.astimezone(clock)) for each in upcoming(when, start, count, offset)]
    if chosen_form(form) in ("json", "jsonl"):
        instants = [words.instant_object(each) for each in found]
        show_json({"when": describe(when), "upcoming": instants}, indent=2 if form == "json" else 0)
        return
    click.echo(words.headline(key or "", when, offset, ""))
    for line in words.instant_lines(found, clock, now, late="ago"):
        click.echo(f"  {line}")
    if not found:
        click.echo("  Nothing is to come.")
