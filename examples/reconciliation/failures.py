"""Notifies operators of each dead letter once, in Discord: what failed, in which stage, and how to retry it."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.rows import dict_row

from reconciliation import settings
from reconciliation.database import statement
from reconciliation.job_types import CONTROL, QUEUE, app
from sereno import Content, Context, Digest, Every, Recipient, in_app
from sereno.channels.discord import Discord

OPERATORS = "reconciliation:operators"
# Failures listed in one message; the rest is a count.
MOST_LISTED = 10

discord = Discord(url=settings.DISCORD_URL)


@dataclass
class Failure:
    """A dead letter. `run`: its id, also that of the run. `period`: the competence, or the day of sales.

    `stage`: what it did when it failed; None if its worker died.
    """

    run: int
    task: str
    account: str | None
    merchant: str | None
    period: str | None
    stage: str | None
    error: str | None
    trace: str | None


@dataclass
class ReportedFailures:
    """The result of a pass."""

    reported: int


# An outage of the partner is one digest, not a thousand messages.
failed = app.event("reconciliation.failed", Failure, channels=[discord, in_app], digest=Digest("1m"))


@failed.template()
def one(failure: Failure, to: Recipient) -> Content:
    return Content("A job needs a person", f"{_line(failure)}\nTo fix it: sereno job retry {failure.run}")


@failed.digest_template()
def several(failures: Sequence[Failure], to: Recipient) -> Content:
    lines = [_line(failure) for failure in failures[:MOST_LISTED]]
    more = [f"… and {len(failures) - MOST_LISTED} more"] if len(failures) > MOST_LISTED else []
    helps = "To fix it: sereno job list --state dead --queue reconciliation"
    return Content(f"{len(failures)} jobs need a person", "\n".join([*lines, *more, helps]))


def _line(failure: Failure) -> str:
    what = f"{failure.task.removeprefix('reconciliation.')} of {failure.account}, merchant {failure.merchant}"
    where = f"stage {failure.stage or 'unknown'}: {failure.error or '':.200}"
    return f"{what}, {failure.period}: {where} (run {failure.run}, trace {failure.trace})"


@app.cycle(Every(settings.REPORT_EVERY), key="reconciliation.report_failures")
@app.task(name="reconciliation.report_failures", queue=CONTROL)
async def report_failures(ctx: Context) -> ReportedFailures | None:
    """Publish an event for each new dead letter and record that, in one transaction."""
    addresses = {"discord": settings.DISCORD_HOOK} if settings.DISCORD_HOOK else {}
    await app.recipients.aupsert(OPERATORS, addresses)
    async with ctx.transaction() as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement("newly_dead"), {"now": ctx.claimed_at})
        failures = [Failure(**row) for row in await cursor.fetchall()]
        for failure in failures:
            await failed.anotify(failure, to=OPERATORS, trace=failure.trace, conn=connection)
        ctx.set_result(ReportedFailures(len(failures)))
    return None


# Conditions that no job can report: jobs are late, or no worker serves the queue.
if settings.DISCORD_HOOK:
    app.alerts.rule(
        "reconciliation.late",
        kinds=["queue.late", "queue.unserved"],
        queue=QUEUE,
        lasting="5m",
        to=[("discord", settings.DISCORD_HOOK)],
    )
