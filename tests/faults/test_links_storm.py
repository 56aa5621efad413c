"""Fault test of dependencies and groups: workers are killed while chains and groups run.

Every job runs after those that it waits for, and its effect happens once. Checked with the rows that the handlers
wrote.
"""

import os
import random
import signal
from collections import defaultdict
from collections.abc import Callable

import psycopg
import pytest

from sereno import Sereno
from tests.acceptance.conftest import WorkerProcess, assert_sound
from tests.facts import one, until_at_rest
from tests.faults import linked_app

APP = "tests.faults.linked_app:app"
# Jobs of a chain, and of a group.
LENGTH = 6


def enqueue(client: Sereno, round_number: int) -> None:
    """Enqueue a chain, a diamond and a group, in one transaction each."""
    stage, report = linked_app.stage, linked_app.report
    with client.database.connection() as connection, connection.transaction():
        chain, last = f"chain {round_number}", None
        for number in range(LENGTH):
            last = stage.using(connection, after=[] if last is None else [last]).enqueue(chain, number)
        diamond = f"diamond {round_number}"
        first = stage.using(connection).enqueue(diamond, 0)
        sides = [stage.using(connection, after=[first]).enqueue(diamond, number) for number in (1, 2)]
        report.using(connection, after=sides).enqueue(diamond)
    group = f"group {round_number}"
    client.group([stage.job(group, number) for number in range(LENGTH)], then=report.job(group)).enqueue()


def progress(connection: psycopg.Connection) -> object:
    return one(connection, "select count(*) from runs"), one(connection, "select count(*) from sereno.sessions")


@pytest.mark.parametrize(
    ("rounds", "kills"),
    [pytest.param(6, 2, marks=pytest.mark.slow), pytest.param(200, 60, marks=pytest.mark.storm)],
)
@pytest.mark.timeout(3600)
def test_killed_workers_break_no_chain_and_no_group(
    worker: Callable[..., WorkerProcess], connection: psycopg.Connection, database_url: str, rounds: int, kills: int
) -> None:
    connection.execute("create table runs (id bigserial, of text, number integer)")
    rng = random.Random(5)
    linked_app.app.override(database_url=database_url)
    linked_app.app.database.forget_url()
    arguments = ("--processes", "2", "--queue", "work=4")
    running = worker(*arguments, app=APP)
    for number in range(rounds):
        enqueue(linked_app.app, number)
        if number < kills:
            victims = running.children()
            if number % 2 and victims:
                os.kill(rng.choice(victims), signal.SIGKILL)
            else:
                running.kill()
                running = worker(*arguments, app=APP)
    until_at_rest(lambda: one(connection, "select count(*) from sereno.jobs") == 0, lambda: progress(connection))
    runs: dict[str, list[int]] = defaultdict(list)
    for of, number in connection.execute("select of, number from runs order by id").fetchall():
        runs[of].append(number)
    assert len(runs) == 3 * rounds
    for of, numbers in runs.items():
        assert len(numbers) == len(set(numbers)), f"{of}: an effect happened twice: {numbers}"
        if of.startswith("chain"):
            assert numbers == list(range(LENGTH)), f"{of}: {numbers}"
        elif of.startswith("group"):
            assert (sorted(numbers[:-1]), numbers[-1]) == (list(range(LENGTH)), -1), f"{of}: {numbers}"
        else:
            assert (numbers[0], sorted(numbers[1:3]), numbers[3:]) == (0, [1, 2], [-1]), f"{of}: {numbers}"
    assert running.end() == 0
    assert_sound(connection)
    linked_app.app.close()
