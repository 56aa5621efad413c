"""One actor: a connection, and the moves that its program makes on it.

A move is a statement or the end of a transaction, so that others can move while a transaction is open. A statement that
waits for a lock stays pending while others move.
"""

from enum import Enum, auto
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from sereno.database.statement import Operation, Row, Statement
from tests.interleavings.pending_statement import PendingStatement
from tests.interleavings.program import Isolation, Program, ReplyLost, Run

ISOLATION = {
    "read committed": psycopg.IsolationLevel.READ_COMMITTED,
    "repeatable read": psycopg.IsolationLevel.REPEATABLE_READ,
}


class Next(Enum):
    """What an actor does when it moves."""

    STATEMENT = auto()
    COMMIT = auto()
    NOTHING = auto()


class Actor:
    """Runs one program. `next`: its next move; `pending`: a statement that has not returned."""

    def __init__(self, name: str, connection: psycopg.Connection[Any], program: Program) -> None:
        self.name = name
        self.pid = connection.info.backend_pid
        self.pending: PendingStatement | None = None
        # The program starts with the first move, so that it sees what others did before.
        self.next = Next.STATEMENT
        self._has_begun = False
        # An error that the program did not handle.
        self.error: BaseException | None = None
        self._connection = connection
        self._cursor = connection.cursor(row_factory=tuple_row)
        self._program = program
        self._run = Run(_nothing())
        self._statement: Statement | None = None
        self._rows: list[Row] = []
        self._result: Any = None
        self._isolation: Isolation | None = None

    @property
    def is_done(self) -> bool:
        return self.next is Next.NOTHING and self.pending is None

    @property
    def may_lose_reply(self) -> bool:
        return self.next is Next.COMMIT

    def begin_statement(self) -> None:
        """Send the next statement, if there is one; `finish_statement` takes its rows."""
        if not self._has_begun:
            self._has_begun = True
            self._resume(None)
        if self.next is Next.STATEMENT:
            assert self._statement is not None
            if self._run.isolation != self._isolation and self._connection.info.transaction_status == 0:
                self._connection.isolation_level = ISOLATION[self._run.isolation]
                self._isolation = self._run.isolation
            self.pending = PendingStatement(self._cursor, self._statement.text("sereno"), self._statement.params)

    def finish_statement(self) -> None:
        """Take the rows of the pending statement, or give its error to the program."""
        assert self.pending is not None
        pending, self.pending = self.pending, None
        try:
            self._rows = pending.rows()
        except psycopg.Error as error:
            self._connection.rollback()
            self._throw(error)
            return
        if self._run.atomic:
            self._send_rows()
        else:
            self.next = Next.COMMIT

    def commit(self, *, lose_reply: bool = False) -> None:
        """End the transaction. `lose_reply`: the program is told that the reply was lost."""
        try:
            self._connection.commit()
        except psycopg.Error as error:
            self._connection.rollback()
            self._throw(error)
            return
        if lose_reply:
            self._throw(ReplyLost())
        elif self._run.atomic:
            self._resume(self._result)
        else:
            self._send_rows()

    def kill(self) -> None:
        """End the process: its transaction is rolled back, and nothing follows."""
        self._connection.rollback()
        self._program.close()
        self.next = Next.NOTHING

    def reset(self) -> None:
        """Leave the connection as it was, after a schedule that was given up in the middle."""
        if self.pending is not None:
            self._connection.cancel_safe()
            self.pending.wait(None)
        self._connection.rollback()

    def _send_rows(self) -> None:
        """Send the rows of the last statement to the operation; it yields the next statement, or its result."""
        rows, self._rows = self._rows, []
        try:
            self._statement = self._run.operation.send(rows)
            self.next = Next.STATEMENT
        except StopIteration as stop:
            if self._run.atomic:
                self._result = stop.value
                self.next = Next.COMMIT
            else:
                self._resume(stop.value)
        except Exception as error:  # noqa: BLE001 - the program may expect it
            self._connection.rollback()
            self._throw(error)

    def _resume(self, value: Any) -> None:
        """Continue the program with the result of an operation, up to the first statement of the next one."""
        try:
            while True:
                self._run = self._program.send(value)
                try:
                    self._statement = next(self._run.operation)
                    self.next = Next.STATEMENT
                    return
                except StopIteration as stop:
                    value = stop.value
        except StopIteration:
            self.next = Next.NOTHING
        except Exception as error:  # noqa: BLE001 - reported by the execution
            self.error, self.next = error, Next.NOTHING

    def _throw(self, error: BaseException) -> None:
        """Give an error to the program, which may go on with another operation."""
        try:
            self._run = self._program.throw(error)
        except (StopIteration, ReplyLost):
            # It has ended, or does not try again.
            self.next = Next.NOTHING
            return
        except Exception as unhandled:  # noqa: BLE001 - reported by the execution
            self.error, self.next = unhandled, Next.NOTHING
            return
        try:
            self._statement = next(self._run.operation)
            self.next = Next.STATEMENT
        except StopIteration as stop:
            self._resume(stop.value)


def _nothing() -> Operation[None]:
    return
    yield
