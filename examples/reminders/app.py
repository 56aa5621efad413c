"""Every five minutes, due reminders become events, which sereno sends by the channels in `channels/`."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import psycopg
from psycopg.rows import class_row

from reminders import dead_letters
from reminders.channels import ways
from reminders.settings import (
    CRON_ENABLED,
    CRON_EXPRESSION,
    TIMEZONE,
    ZONE,
    active_channels,
    engine_settings,
)
from sereno import Content, Context, Cron, Recipient, Sereno, in_app
from sereno.errors import ConfigurationError
from sereno.notifications.event_handle import Event

# Reminders in one transaction.
BATCH = 500

app = Sereno(service="reminders", **engine_settings())
if app.settings.channels is None:
    # As in the original design: without a configuration, reminders are told in the application alone.
    app.override(channels=["in_app"])


@dataclass
class Due:
    """The payload of a reminder event."""

    title: str
    asset: str
    due_at: datetime


@dataclass
class Reminder(Due):
    """A row that `FIND` returned."""

    id: int
    person: str
    channel: str


def content(due: Due, to: Recipient) -> Content:
    about = f"{due.asset}: " if due.asset else ""
    return Content(f"Reminder: {due.title}", f"{about}due on {due.due_at.astimezone(ZONE):%d.%m.%Y at %H:%M %Z}")


def adapted(adapt: Callable[[Content], Content], due: Due, to: Recipient) -> Content:
    return adapt(content(due, to))


def declare() -> dict[str, Event[Due]]:
    """Declare one event type per channel, so that each reminder can choose its channel."""
    events = {"in_app": app.event("reminders.due.in_app", Due, channels=[in_app], category="reminders")}
    found = list(ways())
    for way in found:
        name = way.channel.name
        app.channels.add(way.channel, **way.account)
        events[name] = app.event(f"reminders.due.{name}", Due, channels=[way.chain], category="reminders")
    for event in events.values():
        event.template()(content)
        for way in found:
            if way.adapt is not None:
                event.template(way.channel)(partial(adapted, way.adapt))
    unknown = sorted({*(active_channels() or ())} - events.keys())
    if unknown:
        raise ConfigurationError(f"NOTIFICATION_ACTIVE_CHANNELS: {unknown[0]} is none of {', '.join(sorted(events))}")
    return events


due_by = declare()


def event_for(channel: str) -> Event[Due]:
    return due_by.get(channel, due_by["in_app"])


def key_of(due_at: datetime) -> str:
    """Return the event key: with the id of the reminder it allows one event per due date."""
    return due_at.astimezone(UTC).isoformat()


@dataclass
class Counts:
    """What a run of the search did. `to_inbox`: of them, those whose channel does not exist or is not active."""

    found: int
    to_inbox: int


# A concurrent search skips rows that are being queued here.
FIND = """
    select id, person, title, asset, channel, due_at from reminders.reminders
    where due_at <= now() and queued_for is distinct from due_at
    order by due_at limit %s for update skip locked
"""
QUEUED = """
    update reminders.reminders r set queued_for = due_at, event_id = queued.event_id
    from unnest(%s::bigint[], %s::bigint[]) as queued (id, event_id) where r.id = queued.id
"""


@app.task(name="reminders.find", queue="reminders")
async def find(ctx: Context) -> Counts:
    """Commit reminders, their events and the success of this job together: a crash leaves all of it or nothing."""
    async with ctx.transaction() as connection:
        cursor = connection.cursor(row_factory=class_row(Reminder))
        found = await (await cursor.execute(FIND, [BATCH])).fetchall()
        for each in found:
            if each.channel not in due_by:
                ctx.log.warning("reminder %s: its channel does not exist, so it goes to the inbox", each.id)
        events = [await notify(each, ctx.trace, connection) for each in found]
        await connection.execute(QUEUED, [[each.id for each in found], events])
        if len(found) == BATCH:
            await find.using(connection).aenqueue()
        counts = Counts(len(found), sum(not app.channels.is_active(each.channel) for each in found))
        ctx.set_result(counts)
    return counts


if CRON_ENABLED:
    app.cycle(Cron(CRON_EXPRESSION, tz=TIMEZONE))(find)


async def notify(reminder: Reminder, trace: str | None, connection: psycopg.AsyncConnection[Any]) -> int:
    """Write the event of a reminder, with the job that sends it. Return its id."""
    return await event_for(reminder.channel).anotify(
        Due(reminder.title, reminder.asset, reminder.due_at),
        to=reminder.person,
        subject=str(reminder.id),
        key=key_of(reminder.due_at),
        trace=trace,
        conn=connection,
    )


dead_letters.declare(app)

Status = Literal["PENDING", "SENT", "OVERDUE"]


def status(reminder: int) -> Status | None:
    """Return the status of a reminder, read from its deliveries; None if the id is unknown."""
    with psycopg.connect(app.url) as connection:
        row = connection.execute(
            "select status from reminders.reminder_status where reminder_id = %s", [reminder]
        ).fetchone()
    return row[0] if row else None
