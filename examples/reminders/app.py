"""Every five minutes, due reminders become events, which sereno sends by the channels in `channels/`."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import psycopg
from psycopg.rows import class_row

from reminders.channels import ways
from reminders.settings import EVERY, ZONE
from sereno import Content, Context, Every, Recipient, Sereno, in_app
from sereno.notifications.event_handle import Event

# Reminders in one transaction.
BATCH = 500

app = Sereno(service="reminders")


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


def declare() -> dict[str, Event[Due]]:
    """Declare one event type per channel, so that each reminder can choose its channel."""
    events = {"in_app": app.event("reminders.due.in_app", Due, channels=[in_app], category="reminders")}
    for way in ways():
        name = way.channel.name
        app.channels.add(way.channel, **way.account)
        events[name] = app.event(f"reminders.due.{name}", Due, channels=[way.chain], category="reminders")
    for event in events.values():
        event.template()(content)
    return events


due_by = declare()


def event_for(channel: str) -> Event[Due]:
    return due_by.get(channel, due_by["in_app"])


def key_of(due_at: datetime) -> str:
    """Return the event key: with the id of the reminder it allows one event per due date."""
    return due_at.astimezone(UTC).isoformat()


# A concurrent search skips rows that are being queued here.
FIND = """
    update reminders.reminders set queued_for = due_at, queued_by = channel
    where id = any(array(select id from reminders.reminders
                         where due_at <= now() and queued_for is distinct from due_at
                         order by due_at limit %s for update skip locked))
    returning id, person, title, asset, channel, due_at
"""


@app.cycle(Every(EVERY, count_from="clock"))
@app.task(name="reminders.find", queue="reminders")
async def find(ctx: Context) -> None:
    """Commit reminders, their events and the success of this job together: a crash leaves all of it or nothing."""
    async with ctx.transaction() as connection:
        cursor = connection.cursor(row_factory=class_row(Reminder))
        found = await (await cursor.execute(FIND, [BATCH])).fetchall()
        for each in found:
            if each.channel not in due_by:
                ctx.log.warning("reminder %s: its channel does not exist, so it goes to the inbox", each.id)
            await event_for(each.channel).anotify(
                Due(each.title, each.asset, each.due_at),
                to=each.person,
                subject=str(each.id),
                key=key_of(each.due_at),
                trace=ctx.trace,
                conn=connection,
            )
        if len(found) == BATCH:
            await find.using(connection).aenqueue()


Status = Literal["PENDING", "SENT", "OVERDUE"]

READ = "select due_at <= now(), queued_for = due_at, queued_for, queued_by from reminders.reminders where id = %s"


def status(reminder: int) -> Status | None:
    """Return the status of a reminder, read from its deliveries; None if the id is unknown."""
    with psycopg.connect(app.url) as connection:
        row = connection.execute(READ, [reminder]).fetchone()
    if row is None:
        return None
    is_due, is_queued, queued_for, queued_by = row
    if is_queued:
        found = event_for(queued_by).status(str(reminder), key_of(queued_for))
        if found is not None and found.state == "sent":
            return "SENT"
    return "OVERDUE" if is_due else "PENDING"
