"""`sereno procedure …`: manage the stored procedures that jobs may call."""

from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sereno.cli.failures import UNHEALTHY
from sereno.cli.monitoring.doctor import show_finding
from sereno.cli.notifications.page import OrderedGroup
from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, chosen_form, human_seconds, short_time, show_json, show_list, show_record
from sereno.errors import ConfigurationError, InvalidArguments

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.cli.context import CommandContext
    from sereno.procedures.operations import ProcedureDetail, ProcedureOperations
    from sereno.procedures.rows import AllowedProcedure

T = TypeVar("T")

HERE = "here"
LEVELS = {"ok": "ok", "unreachable": "warn"}
LONGEST_RESULT = 200

COLUMNS = (
    Column("target", lambda line: line.allowed.target),
    Column("name", lambda line: line.allowed.name, "name"),
    Column("signature", lambda line: str(line.allowed.signature), "wide"),
    Column("timeout", lambda line: line.allowed.timeout, "seconds"),
    Column("by", lambda line: line.allowed.allowed_by),
    Column("allowed", lambda line: line.allowed.allowed_at),
    Column("last run", lambda line: line.last and line.last.finished_at),
    Column("took", lambda line: line.last and line.last.seconds, "seconds"),
)


@click.group(cls=OrderedGroup)
def procedure() -> None:
    """Manage the stored procedures that jobs may call."""


def target_option(function: Any) -> Any:
    """Add --target, the database of the procedure."""
    text = "Target in procedure_targets, for a procedure in another database."
    return click.option("--target", metavar="NAME", default=HERE, help=text)(function)


@procedure.command(epilog="Example: sereno procedure allow reporting.close_day --params 'day date' --timeout 30m")
@click.argument("name", metavar="SCHEMA.NAME")
@target_option
@click.option("--params", metavar="LIST", help="Parameters, to choose between overloads: 'day date, dry boolean'.")
@click.option("--kind", type=click.Choice(["function", "procedure"]), help="Kind, if both have this name.")
@click.option("--timeout", metavar="DURATION", default="5m", show_default=True, help="Statement timeout.")
@click.option(
    "--lock-timeout", metavar="DURATION", default="10s", show_default=True, help="Timeout of each wait for a lock."
)
@click.option(
    "--give",
    "given",
    multiple=True,
    metavar="PARAM=FACT",
    help="Fill a parameter from the job: job, attempt, tenant, trace or planned_at. Repeatable.",
)
@click.option("--note", help="Reason, shown with the procedure.")
@output_option
@context_options
def allow(
    context: "CommandContext",
    name: str,
    target: str,
    params: str | None,
    kind: Any,
    given: Sequence[str],
    form: str,
    **options: Any,
) -> None:
    """Allow jobs to call a procedure with its current signature. Repeat it to replace the options."""
    from sereno.procedures.operations import allow as operation  # noqa: PLC0415 - slow to import; --help needs none

    signature = _done(_catalogues(context).resolve(target, name, params=params, kind=kind))
    made = context.run(operation(target, signature, given=dict(map(_pair, given)), **options))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(made, indent=2 if form == "json" else 0)
        return
    click.echo(str(made.signature))
    click.echo(f"Jobs may call it: app.procedure({made.name!r}{_on(target)}).", err=True)


@procedure.command("list", epilog="Example: sereno procedure list")
@output_option
@context_options
def list_allowed(context: "CommandContext", form: str) -> None:
    """List allowed procedures, each with its last successful call."""
    from sereno.procedures.operations import list_allowed as operation  # noqa: PLC0415 - slow to import; --help needs none

    show_list(
        form,
        context.run(operation()),
        COLUMNS,
        empty="No procedure is allowed. Allow one: sereno procedure allow SCHEMA.NAME",
    )


@procedure.command(epilog="Example: sereno procedure show reporting.close_day")
@click.argument("name", metavar="SCHEMA.NAME")
@target_option
@output_option
@context_options
def show(context: "CommandContext", name: str, target: str, form: str) -> None:
    """Show an allowed procedure and the results of its newest calls."""
    from sereno.procedures.operations import show as operation  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(operation(target, name))
    show_record(form, found, lambda: _lines(found))


@procedure.command(epilog="Example: sereno procedure revoke reporting.close_day")
@click.argument("name", metavar="SCHEMA.NAME")
@target_option
@context_options
def revoke(context: "CommandContext", name: str, target: str) -> None:
    """Revoke a procedure. Jobs that call it become dead; results that are stored with jobs stay."""
    from sereno.procedures.operations import revoke as operation  # noqa: PLC0415 - slow to import; --help needs none

    click.echo(f"Revoked: jobs may no longer call {context.run(operation(target, name)).signature}.", err=True)


@procedure.command(epilog="Example: sereno procedure check || alert")
@click.argument("name", metavar="[SCHEMA.NAME]", required=False)
@target_option
@output_option
@context_options
def check(context: "CommandContext", name: str | None, target: str, form: str) -> int:
    """Check that procedures still have their allowed signatures. Exits with 6 when one does not."""
    from sereno.procedures import operations as procedures  # noqa: PLC0415 - slow to import; --help needs none

    if name is None:
        wanted = [line.allowed for line in context.run(procedures.list_allowed())]
    else:
        wanted = [context.run(procedures.find(target, name))]
    catalogues = _catalogues(context)

    async def check_all() -> list[procedures.ProcedureFinding]:
        return [await catalogues.check(each) for each in wanted]

    found = _done(check_all())
    code = UNHEALTHY if any(each.standing != "ok" for each in found) else 0
    if chosen_form(form) in ("json", "jsonl"):
        show_json({"items": found}, indent=2 if form == "json" else 0)
        return code
    for each in found:
        where = "" if each.target == HERE else f"{each.target}: "
        show_finding(LEVELS.get(each.standing, "fail"), each.standing, f"{where}{each.message}", width=12)
    return code


@procedure.command(epilog="Example: sereno procedure run reporting.close_day -p day=2026-11-01 -a shop:app")
@click.argument("name", metavar="SCHEMA.NAME")
@target_option
@click.option(
    "-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="Parameter as text or number; repeatable."
)
@click.option("--args", "arguments", metavar="JSON", help="All parameters as one JSON object.")
@click.option("--tenant")
@output_option
@context_options
def run(
    context: "CommandContext",
    name: str,
    target: str,
    params: Sequence[str],
    arguments: str | None,
    tenant: str | None,
    form: str,
) -> None:
    """Enqueue a job that calls a procedure, and print its id. Invalid parameters are refused at once."""
    from sereno.jobs.job import JobOptions  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.operations import enqueue  # noqa: PLC0415 - see above
    from sereno.procedures.operations import find  # noqa: PLC0415 - see above

    given = {**_object(arguments), **dict(map(_pair, params))}
    allowed = context.run(find(target, name))
    _done(_catalogues(context).check_params(allowed, given))
    task = _task(context.app, allowed)
    wanted = context.app.new_job(task, _encoded(given), JobOptions(tenant=tenant))
    (made,) = context.run(enqueue([wanted]))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(made, indent=2 if form == "json" else 0)
        return
    click.echo(made.id)
    click.echo(f"Enqueued. See its result: sereno job show {made.id}", err=True)


def _done(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # noqa: PLC0415 - slow to import; --help needs none

    return asyncio.run(work)


def _catalogues(context: "CommandContext") -> "ProcedureOperations":
    from sereno.procedures.operations import ProcedureOperations  # noqa: PLC0415 - slow to import; --help needs none

    return ProcedureOperations(context.settings, context.url)


def _task(app: "Sereno", allowed: "AllowedProcedure") -> str:
    from sereno.procedures.open_arguments import calling_task  # noqa: PLC0415 - slow to import; --help needs none

    task = calling_task(app.registry, allowed.target, allowed.signature.full_name)
    if task is not None:
        return task
    wanted = f"app.procedure({allowed.name!r}{_on(allowed.target)})"
    raise ConfigurationError(f"this application has no task that calls {allowed.name}: add {wanted}")


def _lines(found: "ProcedureDetail") -> Iterator[str]:
    allowed = found.allowed
    yield f"{'procedure':<12}{allowed.signature}"
    yield f"{'target':<12}{allowed.target}"
    for name, fact in allowed.given.items():
        yield f"{'given':<12}{name} is the job's {fact}"
    yield f"{'timeout':<12}{human_seconds(allowed.timeout)}, {human_seconds(allowed.lock_timeout)} for a lock"
    if allowed.note:
        yield f"{'note':<12}{allowed.note}"
    yield f"{'allowed':<12}{short_time(allowed.allowed_at)} by {allowed.allowed_by}"
    for each in found.runs:
        count = each.result.get("row_count")
        rows = "" if count is None else ", 1 row" if count == 1 else f", {count:,} rows"
        yield f"{'run':<12}{short_time(each.finished_at)}, job {each.job_id}, {human_seconds(each.seconds)}{rows}"
        yield f"{'':<12}{_short(each.result.get('rows'))}"


def _short(value: Any) -> str:
    import json  # noqa: PLC0415 - only here

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_RESULT else f"{text[:LONGEST_RESULT]}…"


def _pair(word: str) -> tuple[str, str]:
    name, separator, value = word.partition("=")
    if not name or not separator:
        raise InvalidArguments(f"{word!r:.60}: expected NAME=VALUE")
    return name, value


def _object(text: str | None) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - slow to import; --help needs none

    try:
        return {} if text is None else msgspec.json.decode(text.encode(), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidArguments(f"--args must be one JSON object: {error}") from None


def _encoded(value: dict[str, Any]) -> bytes:
    from sereno.database.json_values import stored  # noqa: PLC0415 - slow to import; --help needs none

    return stored(value, lambda why: InvalidArguments(f"parameters: {why}"))


def _on(target: str) -> str:
    return "" if target == HERE else f", target={target!r}"
