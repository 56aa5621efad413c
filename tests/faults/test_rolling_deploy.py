"""A rolling deploy: workers of two releases at once, and jobs that only the newer one can run."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.jobs.job import NewJob
from sereno.monitoring.verify import verify
from tests.facts import one, until
from tests.faults.release_app import NEW, OLD, in_release
from tests.warm_process import WarmProcess

ROOT = Path(__file__).parents[2]
LEASE, HEARTBEAT = 4.0, 1.0
# Kills of whole workers in the storm, and jobs of each kind between two of them.
KILLS, JOBS = 6, 10

pytestmark = pytest.mark.slow

Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(database_url: str, connection: psycopg.Connection) -> Iterator[Start]:
    """Return a function that starts a worker of a release; those that are left are terminated afterwards."""
    connection.execute("create table runs (job_id bigint, release text)")
    workers: list[subprocess.Popen[bytes]] = []

    def start(release: str) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "SERENO_DATABASE_URL": database_url,
            "SERENO_RELEASE": release,
            "SERENO_LEASE": str(LEASE),
            "SERENO_HEARTBEAT": str(HEARTBEAT),
            "SERENO_POLL": "0.2",
        }
        command = [sys.executable, "-m", "sereno", "worker", "tests.faults.release_app:app"]
        workers.append(WarmProcess(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL))
        return workers[-1]

    yield start
    for process in workers:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


@pytest.fixture
def apps(database_url: str) -> Iterator[tuple[Sereno, Sereno]]:
    """Return the application in the old and in the new release, to enqueue from."""
    found = in_release(OLD, database_url), in_release(NEW, database_url)
    yield found
    for app in found:
        app.close()


def live(connection: psycopg.Connection) -> list[str]:
    rows = connection.execute("select distinct release from sereno.sessions where state = 'alive' order by release")
    return [release for (release,) in rows.fetchall()]


def jobs_of(apps: tuple[Sereno, Sereno], count: int) -> tuple[list[NewJob], list[NewJob]]:
    """Return jobs that both releases can run, and jobs that only the new one can run."""
    old, new = apps
    both = [old.new_job("export", b'{"account": "a"}') for _ in range(count)]
    newer = [new.new_job("export", b'{"account": "a", "form": "pdf"}') for _ in range(count)]
    return both, newer + [new.new_job("totals", b'{"day": "2026-11-18"}') for _ in range(count)]


def all_ended(connection: psycopg.Connection) -> bool:
    return bool(one(connection, "select not exists (select from sereno.jobs)"))


def test_no_job_of_the_new_release_dies_while_old_workers_run(
    connection: psycopg.Connection, start: Start, apps: tuple[Sereno, Sereno]
) -> None:
    start(OLD)
    until(lambda: live(connection) == [OLD])
    both, newer = jobs_of(apps, 20)
    # The code that enqueues is deployed first: for a while there is no worker for its jobs.
    versioned = [job for job in newer if job.requires is not None]
    apps[1].enqueue_many(versioned)
    apps[0].enqueue_many(both)
    until(lambda: one(connection, "select count(*) from runs") == len(both))
    assert one(connection, "select sum(attempt) from sereno.jobs") == 0
    start(NEW)
    until(lambda: live(connection) == [OLD, NEW])
    apps[1].enqueue_many([job for job in newer if job.requires is None])
    until(lambda: all_ended(connection))
    ended = connection.execute("select distinct state, failures from sereno.history").fetchall()
    assert ended == [("succeeded", 0)]
    by_the_old = connection.execute(
        "select distinct task, requires from runs join sereno.history on id = job_id where release = %s", [OLD]
    )
    assert by_the_old.fetchall() in ([], [("export", None)])


@pytest.mark.timeout(600)
def test_killed_workers_of_two_releases_lose_and_misplace_nothing(
    connection: psycopg.Connection, start: Start, apps: tuple[Sereno, Sereno]
) -> None:
    chance = random.Random(7)
    workers = {release: start(release) for release in (OLD, NEW)}
    until(lambda: live(connection) == [OLD, NEW])
    made = 0
    for _ in range(KILLS):
        both, newer = jobs_of(apps, JOBS)
        made += len(apps[1].enqueue_many([*both, *newer]))
        killed = chance.choice((OLD, NEW))
        # Its child finishes what it runs, and ends.
        workers[killed].kill()
        workers[killed].wait(60)
        workers[killed] = start(killed)
        before = one(connection, "select count(*) from runs")
        until(lambda: one(connection, "select count(*) from runs") > before or all_ended(connection))  # noqa: B023 - called here
    until(lambda: all_ended(connection), timeout=120)
    assert one(connection, "select count(*) from sereno.history where state = 'succeeded'") == made
    assert one(connection, "select count(*) from runs") == made
    misplaced = (
        "select count(*) from runs join sereno.history on id = job_id where release = %s and requires is not null"
    )
    assert one(connection, misplaced, OLD) == 0
    assert [result.name for result in apps[1].database.run(verify(lease=LEASE)) if not result.holds] == []
