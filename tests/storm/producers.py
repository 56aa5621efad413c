"""`python -m tests.storm.producers`: a process that enqueues jobs and writes down which of them were accepted.

One producer uses the library and also creates events; the other one uses SQL only, as `psql` does, and begins bulk
operations. What is not acknowledged is not repeated: it may exist or not.
"""

import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import psycopg

from sereno.bulk.operations import begin
from sereno.jobs.filters import JobFilter
from tests.faults.notified_app import Offer
from tests.storm import app as storm
from tests.storm.journal import CancelAccepted, EventAccepted, JobAccepted, Journal
from tests.storm.workflows import FAULTS, PAUSE, LibraryWorkflows, SqlWorkflows

# Jobs of one call, of one bulk operation, and between two events and two bulk operations.
BATCH, BULK, EVENT_EVERY, BULK_EVERY = 40, 10, 400, 1000
# Recipients of each event.
RECIPIENTS = 20
# Live jobs above which producers wait.
MOST_WAITING = 3_000

# The share of each task, in hundredths.
SHARES = {
    "plain": 50, "flaky": 10, "counted": 16, "in_steps": 3, "two_at_once": 6, "in_order": 5, "narrow": 5, "rated": 2,
    "iterated": 3,
}  # fmt: skip

ENQUEUE = """
    select sereno.enqueue(task, args, queue => queue, tenant => tenant,
                          run_at => case when tenant is not null then sereno.now() + interval '10 years' end)
    from rows from (jsonb_to_recordset(%s::jsonb) as (task text, args jsonb, queue text, tenant text)) with ordinality
    order by ordinality
"""
WAITING = "select count(*) from (select from sereno.jobs where state <> 'scheduled' limit %s) as waiting"


class Producer(ABC):
    """Enqueues `count` jobs within about `seconds`."""

    def __init__(self, name: str, url: str, journal: Journal, rng: random.Random) -> None:
        self.name = name
        self.url = url
        self._journal = journal
        self._rng = rng
        self._numbers = 0

    def run(self, count: int, seconds: float) -> None:
        began, accepted = time.monotonic(), 0
        while accepted < count:
            ahead = accepted / count * seconds - (time.monotonic() - began)
            if ahead > 0:
                time.sleep(ahead)
            try:
                if self.is_full():
                    time.sleep(PAUSE)
                    continue
                lines = self.enqueue([self._job() for _ in range(min(BATCH, count - accepted))])
            except FAULTS:
                time.sleep(PAUSE)
                continue
            self._journal.write(*lines)
            accepted += len(lines)
            self.do_more(accepted)
        self.finish()

    def _job(self) -> tuple[str, dict[str, Any]]:
        """Return a random job. An order key belongs to one producer, so that the order of its jobs is known."""
        self._numbers += 1
        n = self._numbers
        (task,) = self._rng.choices(list(SHARES), list(SHARES.values()))
        accounts = {"two_at_once": f"a{n % 11}", "in_order": f"{self.name}{n % 7}"}
        return task, {"n": n} | ({"account": accounts[task]} if task in accounts else {})

    @abstractmethod
    def is_full(self) -> bool:
        """Return whether enough jobs wait already."""

    @abstractmethod
    def enqueue(self, jobs: Sequence[tuple[str, dict[str, Any]]]) -> list[JobAccepted]:
        """Enqueue jobs, all or none, and return them once they are accepted."""

    @abstractmethod
    def do_more(self, accepted: int) -> None:
        """Do what comes after a number of accepted jobs."""

    @abstractmethod
    def finish(self) -> None:
        """Do what is left after the last job."""


class LibraryProducer(Producer):
    """Uses the application object. Creates events."""

    def is_full(self) -> bool:
        with storm.app.database.connection() as connection:
            return _waiting(connection) >= MOST_WAITING

    def enqueue(self, jobs: Sequence[tuple[str, dict[str, Any]]]) -> list[JobAccepted]:
        made = storm.app.enqueue_many([storm.app.new_job(task, json.dumps(args).encode()) for task, args in jobs])
        return [JobAccepted(job.id, task) for job, (task, _) in zip(made, jobs, strict=True)]

    _events = 0
    _workflows: LibraryWorkflows | None = None

    def do_more(self, accepted: int) -> None:
        if self._workflows is None:
            self._workflows = LibraryWorkflows(self.name, self._journal)
        self._workflows.continue_to(accepted)
        self._notify(accepted)

    def finish(self) -> None:
        if self._workflows is not None:
            self._workflows.send_all()

    def _notify(self, accepted: int) -> None:
        """Create an event. One that was not acknowledged is followed by another after the next jobs."""
        if self._events >= accepted // EVENT_EVERY:
            return
        code = f"O{accepted}"
        try:
            with storm.app.database.connection() as connection, connection.transaction():
                # New recipients: the provider reports some addresses as invalid later.
                people = {f"user:{code}:{n}": f"a{n}:{code}" for n in range(RECIPIENTS)}
                for key, address in people.items():
                    storm.app.recipients.upsert(key, {"carrier": [address]}, conn=connection)
                event = storm.offer_made.notify(Offer(code, "V", 100), to=list(people), subject=code, conn=connection)
        except FAULTS:
            return
        self._events += 1
        self._journal.write(EventAccepted(event))


class SqlProducer(Producer):
    """Uses SQL on a connection of its own. Begins bulk operations."""

    _connection: psycopg.Connection | None = None
    _cancels = 0
    _workflows: SqlWorkflows | None = None

    def is_full(self) -> bool:
        return _waiting(self._connected()) >= MOST_WAITING

    def enqueue(self, jobs: Sequence[tuple[str, dict[str, Any]]], tenant: str | None = None) -> list[JobAccepted]:
        rows = [
            {"task": task, "args": args, "queue": storm.app.registry.find(task).queue, "tenant": tenant}
            for task, args in jobs
        ]
        try:
            made = self._connected().execute(ENQUEUE, [json.dumps(rows)]).fetchall()
        except psycopg.Error:
            self._disconnect()
            raise
        return [JobAccepted(job, task, tenant) for (job,), (task, _) in zip(made, jobs, strict=True)]

    def do_more(self, accepted: int) -> None:
        if self._workflows is None:
            self._workflows = SqlWorkflows(self.name, self._journal, self._connected)
        self._workflows.continue_to(accepted)
        self._cancel_in_bulk(accepted)

    def finish(self) -> None:
        if self._workflows is not None:
            self._workflows.send_all()

    def _cancel_in_bulk(self, accepted: int) -> None:
        """Enqueue jobs of a new tenant for a distant time, and cancel them in bulk."""
        if self._cancels >= accepted // BULK_EVERY:
            return
        self._cancels += 1
        tenant = f"bulk {self._cancels}"
        try:
            lines = self.enqueue([("cancelled_in_bulk", {"n": n}) for n in range(BULK)], tenant)
        except FAULTS:
            lines = []
        self._journal.write(*lines)
        while True:
            # Until it is acknowledged: the jobs may exist although their enqueue was not.
            try:
                found = storm.app.database.run(begin("job.cancel", JobFilter(tenant=tenant), yes=True, actor="storm"))
            except FAULTS:
                time.sleep(PAUSE)
            else:
                self._journal.write(CancelAccepted(found.id, tenant))
                return

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url, autocommit=True, connect_timeout=5)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _waiting(connection: psycopg.Connection) -> int:
    row = connection.execute(WAITING, [MOST_WAITING]).fetchone()
    assert row is not None
    return int(row[0])


KINDS: dict[str, type[Producer]] = {"library": LibraryProducer, "sql": SqlProducer}


@click.command()
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.option("--journals", type=click.Path(path_type=Path), required=True)
@click.option("--jobs", type=int, required=True)
@click.option("--seconds", type=float, required=True)
@click.option("--seed", type=int, required=True)
def main(kind: str, journals: Path, jobs: int, seconds: float, seed: int) -> None:
    """Enqueue jobs on the database of SERENO_DATABASE_URL."""
    producer = KINDS[kind](kind, storm.app.url, Journal(journals), random.Random(seed))
    producer.run(jobs, seconds)


if __name__ == "__main__":
    main()
