"""The dead-letter queue: a job for each delivery that used up its attempts, for this program or any other to take."""

from dataclasses import dataclass

from psycopg.rows import class_row

from reminders.settings import DEAD_LETTER_QUEUE
from sereno import Context, Every, Sereno

# Deliveries in one transaction.
BATCH = 500


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


HAND_OVER = """
    with handed_over as (
        insert into reminders.dead_letters (delivery_id, died_at)
        select id, updated_at from reminders.reminder_deliveries d
        where state = 'dead' and not exists (
            select from reminders.dead_letters l where l.delivery_id = d.id and l.died_at = d.updated_at)
        limit %s
        on conflict do nothing
        returning delivery_id)
    select id as delivery, reminder_id as reminder, channel, attempts, last_error as error
    from reminders.reminder_deliveries where id in (select delivery_id from handed_over)
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
            letters = await (await cursor.execute(HAND_OVER, [BATCH])).fetchall()
            await app.aenqueue_many([dead_letter.job(letter) for letter in letters], connection)
            counts = Counts(len(letters))
            ctx.set_result(counts)
        return counts
