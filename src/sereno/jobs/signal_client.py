"""`app.signal` and `app.asignal`: send a value to the jobs that wait for its name."""

from typing import Any

from sereno.database.client import DatabaseClient
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.jobs import signals
from sereno.telemetry import tracing
from sereno.text import check_text


class SignalClient(DatabaseClient):
    """Sends signals, on the application's connection or in the caller's transaction."""

    def send(self, name: str, value: Any, tenant: str | None, conn: Any) -> int:
        with tracing.sending("signal", name):
            return self._run(self._operation(name, value, tenant), conn)

    async def asend(self, name: str, value: Any, tenant: str | None, conn: Any) -> int:
        with tracing.sending("signal", name):
            return await self._arun(self._operation(name, value, tenant), conn)

    def _operation(self, name: str, value: Any, tenant: str | None) -> Operation[int]:
        signals.check_name(name)
        check_text("tenant", tenant)
        raw = signals.encode_value(name, value, self._database.settings.arguments_limit)
        return signals.send(name, raw, tenant)


class SignalMethods:
    """The methods of the application that send signals."""

    database: Database

    def signal(self, name: str, value: Any = None, *, tenant: str | None = None, conn: Any = None) -> int:
        """Send a signal to the jobs that wait for its name, now or later; return its id.

        `conn`: your connection; then jobs get the signal when your transaction commits. Every job that waits gets it.
        A job of a tenant gets the signals of that tenant only.
        """
        return SignalClient(self.database).send(name, value, tenant, conn)

    async def asignal(self, name: str, value: Any = None, *, tenant: str | None = None, conn: Any = None) -> int:
        """`signal` for async code."""
        return await SignalClient(self.database).asend(name, value, tenant, conn)
