"""The contract of a database in which jobs call procedures.

    async with target.open() as session:        a connection of the call's own, closed afterwards
        await session.check_login()             UnsafeLogin: it can do more than a procedure should
        found = await session.resolve(name)     every function and procedure of this name in the catalogue
        values = await session.convert(…)       InvalidArguments: a parameter does not fit; nothing has run
        result = await session.call(…)          runs it

If a call is cancelled, its statement is cancelled on the server too.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from sereno.errors import ConfigurationError
from sereno.procedures.procedure import Dialect, ProcedureName, ProcedureSignature
from sereno.procedures.result import ProcedureNotices, ProcedureResult

# Seconds after its timeout at which a statement that the server does not end is abandoned.
GIVE_UP_AFTER = 15.0
# Timeout of a connection attempt.
CONNECT_SECONDS = 10


class UnsafeLogin(ConfigurationError):  # noqa: N818 - named like those in errors
    """The login can do more than a procedure should be able to."""


class Timeouts(NamedTuple):
    """Timeouts in seconds: of the whole statement, and of each wait for a lock."""

    statement: float
    lock: float


class Session(Protocol):
    """One connection, for one call."""

    async def check_login(self) -> None:
        """Raise UnsafeLogin if a procedure called with this login could do too much."""

    async def resolve(self, name: ProcedureName) -> list[ProcedureSignature]:
        """Return every function and procedure of exactly this name."""

    async def may_execute(self, name: ProcedureName) -> bool:
        """Return whether the login may call it."""

    async def convert(self, signature: ProcedureSignature, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values as the database takes them. Raises InvalidArguments. Runs nothing."""

    async def call(
        self, signature: ProcedureSignature, values: Mapping[str, Any], timeouts: Timeouts, notices: ProcedureNotices
    ) -> ProcedureResult:
        """Run it. Notices are collected as they arrive, also if it fails."""


class Target(Protocol):
    """A database by its address."""

    dialect: Dialect

    def open(self) -> AbstractAsyncContextManager[Session]:
        """Open a new connection, without state of earlier calls. Raises DatabaseUnavailable."""
