"""The dead-letter queue: a job for each delivery that used up its attempts, for this program or any other to take."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import class_row

from reminders.settings import DEAD_LETTER_QUEUE
from reminders.statuses import OWN, matching
from sereno import Context, Every, Sereno
from sereno.database.statement import arun
from sereno.notifications.operations import list_deliveries

# Deliveries of one statement.
PAGE = 500


@dataclass
class DeadLetter:
    """The arguments of a job of the queue. `delivery`: the id to requeue."""

    delivery: int
    reminder: str
    channel: str
    attempts: int
    error: str | None


@dataclass
class Counts:
    """What a run did."""

    handed_over: int


# Up to here all have been handed over; an hour for transactions that were still open then.
SINCE = "select max(died_at) - interval '1 hour' from reminders.dead_letters"
HAND_OVER = """
    with handed_over as (
        insert into reminders.dead_letters (delivery_id, died_at)
        select id, updated_at from reminders.reminder_deliveries where id = any(%s) and status = 'DEAD_LETTER'
        on conflict do nothing
        returning delivery_id)
    select id as delivery, reminder_id as reminder, channel, attempts, last_error as error
    from reminders.reminder_deliveries where id = any(array(select delivery_id from handed_over))
    order by id
"""


def declare(app: Sereno) -> None:
    """Declare the task of the queue, and the cycle that puts jobs into it."""

    @app.task(name="reminders.dead_letter", queue=DEAD_LETTER_QUEUE)
    async def dead_letter(ctx: Context, letter: DeadLetter) -> None:
        """Log it: the place for a ticket or an alarm."""
        ctx.log.error(
            "reminder %s was not sent by %s: dead after %d attempts: %s",
            *(letter.reminder, letter.channel, letter.attempts, letter.error),
        )

    @app.cycle(Every("1m"))
    @app.task(name="reminders.hand_over", queue="reminders")
    async def hand_over(ctx: Context) -> Counts:
        """Enqueue a job for each delivery that has died, once for each time that it dies."""
        async with ctx.transaction() as connection:
            cursor = connection.cursor(row_factory=class_row(DeadLetter))
            handed_over = 0
            async for ids in dead(connection, app.settings.schema):
                letters = await (await cursor.execute(HAND_OVER, [ids])).fetchall()
                await app.aenqueue_many([dead_letter.job(letter) for letter in letters], connection)
                handed_over += len(letters)
            counts = Counts(handed_over)
            ctx.set_result(counts)
        return counts


async def dead(connection: psycopg.AsyncConnection[Any], schema: str) -> AsyncIterator[list[int]]:
    """Yield the ids of deliveries that died lately, page by page, and of some that were handed over before."""
    ((since,),) = await (await connection.execute(SINCE)).fetchall()
    wanted = matching(OWN if since is None else f"{OWN} changed:>={since.isoformat()}", ["dead"])
    before: int | None = None
    while lines := await arun(connection, list_deliveries(wanted, limit=PAGE, before=before), schema):
        yield [line.id for line in lines]
        before = lines[-1].id
