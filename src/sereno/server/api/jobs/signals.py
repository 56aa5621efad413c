"""Signals: send one to the jobs that wait for it.

Closed to tokens of a tenant: a function trusts a signal, such as `paid:42`, like a call of the application's own code.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from sereno.jobs.signal_operations import new_signal
from sereno.jobs.signals import NAME_LIMIT
from sereno.server.api.bounds import Name
from sereno.server.api.router import Router, Who
from sereno.server.shared.caller_trace import CallerTrace, continued
from sereno.server.shared.context import ServerContext
from sereno.telemetry import tracing


class NewSignalBody(BaseModel):
    """A signal. Jobs of its tenant that wait for the name get the value; without a tenant, jobs without one."""

    name: str = Field(min_length=1, max_length=NAME_LIMIT)
    value: Any = None
    tenant: Name | None = None


@dataclass
class SentSignal:
    """The id of a stored signal."""

    id: int


def routes(context: ServerContext) -> Router:
    """`/signals`."""
    router = Router(context, "signals")

    @router.operation("POST", "/signals", role="operator", of_tenants=False, status_code=201)
    async def send(body: NewSignalBody, who: Who, caller: CallerTrace) -> SentSignal:
        """Send a signal to all jobs that wait for its name, now or later."""
        limit = context.app.settings.arguments_limit
        with continued(caller) as trace, tracing.sending("signal", body.name):
            # A large value takes a while to encode; the server handles other requests meanwhile.
            operation = await asyncio.to_thread(
                lambda: new_signal(body.name, body.value, limit, tenant=body.tenant, trace=trace, actor=who.actor)
            )
            return SentSignal(await context.change(operation))

    return router
