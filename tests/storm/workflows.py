"""What producers enqueue beside single jobs: groups, chains of dependent jobs, and jobs that wait for a signal."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import psycopg

from sereno import DatabaseUnavailable
from tests.storm import app as storm
from tests.storm.journal import GroupAccepted, JobAccepted, Journal

# Accepted jobs between two workflows; jobs of a group and of a chain.
WORKFLOW_EVERY, GROUP_SIZE, CHAIN_LENGTH = 40, 6, 4
# Jobs that wait for a signal before the first of them gets it.
UNSENT = 2
# Seconds until a producer tries again while the database does not answer.
PAUSE = 0.05
# What a producer sees of faults: no answer, a full disk, no connection left.
FAULTS = (psycopg.OperationalError, DatabaseUnavailable)


class Workflows(ABC):
    """The workflows of one producer. What is not acknowledged may exist or not; a signal is sent until it is."""

    def __init__(self, producer: str, journal: Journal) -> None:
        self._producer = producer
        self._journal = journal
        self._made = 0
        self._unsent: list[tuple[str, int]] = []

    def continue_to(self, accepted: int) -> None:
        """Make the workflows that belong to this number of accepted jobs."""
        while self._made < accepted // WORKFLOW_EVERY:
            self._made += 1
            key = f"{self._producer}:{self._made}"
            # Also if it is not acknowledged: then it may wait.
            self._unsent.append((key, self._made))
            try:
                self._journal.write(*self.make(key), JobAccepted(self.make_waiting(key), "signalled"))
            except FAULTS:
                self.reconnect()
            self._send(UNSENT)

    def send_all(self) -> None:
        """Send all signals that were not sent yet."""
        self._send(0)

    def _send(self, most: int) -> None:
        while len(self._unsent) > most:
            try:
                self.send(*self._unsent[0])
            except FAULTS:
                self.reconnect()
                time.sleep(PAUSE)
            else:
                self._unsent.pop(0)

    @abstractmethod
    def make(self, key: str) -> list[GroupAccepted | JobAccepted]:
        """Enqueue a group or a chain, all or nothing, and return its lines."""

    @abstractmethod
    def make_waiting(self, name: str) -> int:
        """Enqueue a job that waits for a signal, and return its id."""

    @abstractmethod
    def send(self, name: str, value: int) -> None:
        """Send a signal in a transaction that also writes a row."""

    @abstractmethod
    def reconnect(self) -> None:
        """Forget a broken connection."""


class LibraryWorkflows(Workflows):
    """Groups, by the application object."""

    def make(self, key: str) -> list[GroupAccepted | JobAccepted]:
        members = [storm.member.job(key, n) for n in range(GROUP_SIZE)]
        then = storm.app.group(members, then=storm.gathered.job(key)).enqueue().then
        assert then is not None
        return [GroupAccepted(then.id, key, GROUP_SIZE), JobAccepted(then.id, "gathered")]

    def make_waiting(self, name: str) -> int:
        return storm.signalled.enqueue(name).id

    def send(self, name: str, value: int) -> None:
        with storm.app.database.connection() as connection, connection.transaction():
            connection.execute("insert into sent (name) values (%s)", [name])
            storm.app.signal(name, value, conn=connection)

    def reconnect(self) -> None:
        """The pool of the application replaces broken connections."""


class SqlWorkflows(Workflows):
    """Chains of dependent jobs, by SQL."""

    def __init__(self, producer: str, journal: Journal, connected: Callable[[], psycopg.Connection]) -> None:
        super().__init__(producer, journal)
        self._connected = connected

    def make(self, key: str) -> list[GroupAccepted | JobAccepted]:
        ids: list[int] = []
        connection = self._connected()
        with connection.transaction():
            for n in range(CHAIN_LENGTH):
                args = json.dumps({"key": key, "n": n})
                query = "select sereno.enqueue('link', %s, queue => 'work', after => %s::bigint[])"
                ids += connection.execute(query, [args, ids[-1:] or None]).fetchone() or ()
        return [JobAccepted(job, "link") for job in ids]

    def make_waiting(self, name: str) -> int:
        args = json.dumps({"name": name})
        row = self._connected().execute("select sereno.enqueue('signalled', %s, queue => 'work')", [args]).fetchone()
        assert row is not None
        return int(row[0])

    def send(self, name: str, value: int) -> None:
        connection = self._connected()
        with connection.transaction():
            connection.execute("insert into sent (name) values (%s)", [name])
            connection.execute("select sereno.signal(%s, %s)", [name, json.dumps(value)])

    def reconnect(self) -> None:
        try:
            self._connected().close()
        except FAULTS:
            # There is no connection, and the next call tries again.
            return
