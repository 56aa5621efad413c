"""What a database has to be able to do so that jobs can call its procedures.

    async with target.open() as session:        a connection of the call's own, closed afterwards
        await session.check_login()             UnsafeLogin: it can do more than a procedure should
        found = await session.resolve(name)     every function and procedure of this name, as the catalogue has it
        values = await session.convert(…)       InvalidArguments: a parameter does not fit; nothing has run
        result = await session.call(…)          runs it

Whoever is cancelled in the middle of a call has the statement cancelled on the server too.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from sereno.errors import ConfigurationError
from sereno.procedures.procedure import Dialect, ProcedureName, Signature
from sereno.procedures.result import Notices, Result

# A server that does not end a statement by itself is given up so long after it should have.
GIVE_UP_AFTER = 15.0
# To open a connection.
CONNECT_SECONDS = 10


class UnsafeLogin(ConfigurationError):  # noqa: N818 - named for what happened, as those in errors are
    """A login that can do more than a procedure should be able to."""


class Timeouts(NamedTuple):
    """Seconds: of the statement as a whole, and of each wait for a lock."""

    statement: float
    lock: float


class Session(Protocol):
    """One connection, for one call."""

    async def check_login(self) -> None:
        """UnsafeLogin if whatever is called here could do more than it should."""

    async def resolve(self, name: ProcedureName) -> list[Signature]:
        """Every function and procedure of exactly this name."""

    async def may_execute(self, name: ProcedureName) -> bool:
        """Whether the login has the right to call it."""

    async def convert(self, signature: Signature, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values as the database takes them, or InvalidArguments; nothing is run."""

    async def call(
        self, signature: Signature, values: Mapping[str, Any], timeouts: Timeouts, notices: Notices
    ) -> Result:
        """Run it. Notices are told as they come, also when it fails."""


class Target(Protocol):
    """A database by its address."""

    dialect: Dialect

    def open(self) -> AbstractAsyncContextManager[Session]:
        """A fresh connection: nothing of the call before is left in it. DatabaseUnavailable if there is none."""
