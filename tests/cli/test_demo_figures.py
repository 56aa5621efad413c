"""The totals of the demo: they never fall, and agree with `sereno status`."""

import psycopg

from sereno import Sereno
from sereno.bounded_count import BOUND
from sereno.cli.demo import database
from sereno.cli.demo.screen import figures
from sereno.monitoring.status import status
from tests.facts import one

HISTORY = """
insert into sereno.history (id, finished_at, run_at, created_at, attempt, failures, crashes, snoozes, releases,
                            priority, state, queue, task, args)
select n, sereno.now(), sereno.now(), sereno.now(), 1, 0, 0, 0, 0, 5, %(state)s, 'default', %(task)s, '{}'
from generate_series(%(first)s::integer, %(last)s::integer) as n
"""


def test_totals_never_fall_and_agree_with_the_status(app: Sereno, connection: psycopg.Connection) -> None:
    """Also with more jobs than the lists of the dashboard read."""
    first = 1
    for task, state, count in (
        ("tenders.ingest", "dead", 7),
        ("sereno.deliver", "dead", 3),
        ("tenders.ingest", "succeeded", BOUND + 5),
        ("reminders.remind", "succeeded", BOUND + 5),
    ):
        connection.execute(HISTORY, {"state": state, "task": task, "first": first, "last": first + count - 1})
        first += count
    jobs = app.database.run(database.jobs())
    assert (jobs["tenders"].succeeded, jobs["reminders"].succeeded) == (BOUND + 5, BOUND + 5)
    lines = figures([], jobs, [])
    assert [(line.name, line.dead) for line in lines] == [("sereno", 3)]
    dead = app.database.run(status()).dead_letters
    assert sum(each.dead for each in jobs.values()) == dead.value == 10
    assert one(connection, "select count(*) from sereno.history where state = 'dead'") == 10
