"""`sereno why JOB` and `sereno why RECIPIENT EVENT`."""

from typing import TYPE_CHECKING

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.notifications.page import shown
from sereno.cli.options import context_options, output_option
from sereno.cli.output import show_record

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.notifications.why import EventKind


@click.command(epilog="Example: sereno why 4711, or sereno why user:7 tender.published")
@click.argument("subject", metavar="JOB|RECIPIENT")
@click.argument("event", required=False, metavar="[EVENT]")
@click.option("--tenant", help="Tenant of the recipient.  [default: none]")
@output_option
@context_options
def why(context: "CommandContext", subject: str, event: str | None, tenant: str | None, form: str) -> int:
    """Explain why a job is not running, or why a recipient was or was not notified of an event."""
    if event is None:
        return _why_job(context, subject, form)
    from sereno.notifications.why import is_unknown, why_notification  # noqa: PLC0415 - slow to import; --help needs none

    sentences = context.run(why_notification(subject, event, tenant=tenant, known=_known(context)))
    record = {"recipient": subject, "event": event, "tenant": tenant, "why": sentences}
    show_record(form, record, lambda: map(shown, sentences))
    return NOTHING_MATCHED if is_unknown(sentences) else 0


def _why_job(context: "CommandContext", subject: str, form: str) -> int:
    from sereno.jobs.queries.why import no_job  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.jobs.queries.why import why as operation  # noqa: PLC0415 - as above

    try:
        job_id = int(subject)
    except ValueError:
        raise click.UsageError(
            f"{subject!r:.60} is not a job id. For a recipient, add the event: sereno why user:7 tender.published"
        ) from None
    sentences = context.run(operation(job_id))
    show_record(form, {"id": job_id, "why": sentences}, lambda: sentences)
    return NOTHING_MATCHED if no_job(job_id) in sentences else 0


def _known(context: "CommandContext") -> "dict[str, EventKind] | None":
    """Return the events that the application declares, with their active channels; None without an application."""
    from sereno.notifications.why import declared_kind  # noqa: PLC0415 - slow to import; --help needs none

    if not context.settings.app:
        return None
    app = context.app
    return {name: declared_kind(each, app.channels.resolve) for name, each in app.notifications.definitions.items()}
