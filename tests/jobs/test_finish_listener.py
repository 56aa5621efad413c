"""Waits for finished jobs: while the application closes, and after many applications came and went."""

import gc
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from socket import socket

import psycopg
import pytest

from sereno import DatabaseUnavailable, Sereno
from sereno.database.database import Database
from sereno.jobs import finish_listener
from sereno.jobs.attempt import SUCCEEDED
from sereno.jobs.finish_listener import FinishListener
from tests.facts import until
from tests.jobs.job_steps import Connection, add, end, session, take, waits_for_a_lock

LONG = "60s"
APPLICATIONS = 20


def listener_of(app: Sereno) -> FinishListener:
    found = app.database.finish_listener
    assert isinstance(found, FinishListener)
    return found


def finished(connection: Connection) -> int:
    """Return a job that has succeeded."""
    add(connection)
    owner = session(connection)
    (job,) = take(connection, owner)
    end(connection, owner, [job], SUCCEEDED)
    return job.id


@pytest.mark.slow
def test_a_wait_that_begins_while_the_application_closes_gets_its_job(
    app: Sereno, connection: psycopg.Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish_listener, "LINGER", 0.5)
    done, (open_job,) = finished(connection), add(connection)
    with ThreadPoolExecutor() as threads, psycopg.connect(database_url) as blocker:
        # The listener waits inside of its statement: closing waits for the listener.
        blocker.execute("lock table sereno.history in access exclusive mode")
        first = threads.submit(finish_listener.wait, app.database, [open_job], None)
        until(lambda: waits_for_a_lock(connection))
        closing = threads.submit(app.close)
        until(lambda: listener_of(app).is_closed)
        second = threads.submit(finish_listener.wait, app.database, [done], LONG)
        until(lambda: not listener_of(app).is_closed)
        blocker.rollback()
        assert second.result()[0].state == "succeeded"
        with pytest.raises(DatabaseUnavailable, match=f"the application was closed while job {open_job} was waited"):
            first.result()
        closing.result()


async def test_a_wait_without_a_timeout_ends_when_the_application_closes(
    app: Sereno, connection: psycopg.Connection
) -> None:
    (open_job,) = add(connection)
    with ThreadPoolExecutor() as threads:
        wait: Future[object] = threads.submit(finish_listener.wait, app.database, [open_job], None)
        until(lambda: isinstance(app.database.finish_listener, FinishListener) and not listener_of(app).is_idle)
        app.close()
        with pytest.raises(DatabaseUnavailable, match="the application was closed"):
            wait.result()


def counted() -> dict[str, int]:
    """Count what a listener consists of: objects, threads and open files of this process."""
    gc.collect()
    kinds = Counter(type(each) for each in gc.get_objects())
    threads = sum(thread.name == "sereno waiter" for thread in threading.enumerate())
    return {
        **{kind.__name__: kinds[kind] for kind in (FinishListener, Database, Future, socket)},
        "threads": threads,
        "files": len(list(Path("/proc/self/fd").iterdir())),
    }


@pytest.mark.slow
def test_nothing_remains_of_the_listeners_of_closed_applications(connection: Connection, database_url: str) -> None:
    job = finished(connection)

    def wait_once() -> None:
        app = Sereno(database_url)
        assert finish_listener.wait(app.database, [job], LONG)[0].state == "succeeded"
        app.close()

    wait_once()
    before = counted()
    for _ in range(APPLICATIONS):
        wait_once()
    assert counted() == before
