"""Notifies operators of each dead letter once, in Discord: account, task, error, and how to retry it."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from reconciliation import settings
from reconciliation.job_types import QUEUE, app
from sereno import Content, Context, Digest, Every, Recipient, in_app
from sereno.channels.discord import Discord

OPERATORS = "reconciliation:operators"
# Failures listed in one message; the rest is a count.
MOST_LISTED = 10

discord = Discord(url=settings.DISCORD_URL)


@dataclass
class Failure:
    job: int
    task: str
    account: str | None
    period: str
    reason: str | None
    error: str | None
    trace: str | None


# An outage of the partner is one digest, not a thousand messages.
failed = app.event("reconciliation.failed", Failure, channels=[discord, in_app], digest=Digest("1m"))


@failed.template()
def one(failure: Failure, to: Recipient) -> Content:
    return Content("A job needs a person", f"{_line(failure)}\nTo fix it: sereno job retry {failure.job}")


@failed.digest_template()
def several(failures: Sequence[Failure], to: Recipient) -> Content:
    lines = [_line(failure) for failure in failures[:MOST_LISTED]]
    more = [f"… and {len(failures) - MOST_LISTED} more"] if len(failures) > MOST_LISTED else []
    helps = "To fix it: sereno job list --state dead --queue reconciliation"
    return Content(f"{len(failures)} jobs need a person", "\n".join([*lines, *more, helps]))


def _line(failure: Failure) -> str:
    why = failure.error or failure.reason or ""
    return f"{failure.account} {failure.period}: {failure.task}, {why:.200} (job {failure.job}, trace {failure.trace})"


@app.cycle(Every("1m"), key="reconciliation.report_failures")
@app.task(name="reconciliation.report_failures", queue="reconciliation.files")
async def report_failures(ctx: Context) -> None:
    """Publish an event for each new dead letter and record that, in one transaction."""
    addresses = {"discord": settings.DISCORD_HOOK} if settings.DISCORD_HOOK else {}
    await app.recipients.aupsert(OPERATORS, addresses)
    async with ctx.transaction() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(SQL(NEWLY_DEAD).format(dead=Identifier(app.settings.schema, "history_dead")))
        for row in await cursor.fetchall():
            await failed.anotify(Failure(**row), to=OPERATORS, trace=row["trace"], conn=connection)


NEWLY_DEAD = """
with newly as (
    insert into reconciliation.reported (job_id, attempt)
    select id, attempt from {dead} where task like 'reconciliation.%' and task <> 'reconciliation.report_failures'
    on conflict do nothing
    returning job_id, attempt)
select id as job, task, tenant as account, coalesce(args ->> 'turn', args ->> 'today', args ->> 'file') as period,
       reason, error_message as error, trace
from {dead} join newly on (id, {dead}.attempt) = (job_id, newly.attempt)
order by id"""

# Conditions that no job can report: jobs are late, or no worker serves the queue.
if settings.DISCORD_HOOK:
    app.alerts.rule(
        "reconciliation.late",
        kinds=["queue.late", "queue.unserved"],
        queue=QUEUE,
        lasting="5m",
        to=[("discord", settings.DISCORD_HOOK)],
    )
