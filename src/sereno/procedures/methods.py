"""`app.procedure` and `app.call_procedure`: stored procedures as tasks, and calls of them from within a task."""

import math
from collections.abc import Mapping
from typing import Any, Unpack

from sereno.database.database import Database
from sereno.duration import Duration
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.attempt import Dead
from sereno.jobs.task import Registry
from sereno.jobs.task_handle import Task
from sereno.procedures.operations import check_timeout
from sereno.procedures.procedure import HERE, ProcedureName, parse_name
from sereno.procedures.result import ProcedureResult
from sereno.procedures.task import ProcedureOptions, call_allowed, declared
from sereno.worker.context import Context


class ProcedureMethods:
    """The methods of the application that call stored procedures."""

    database: Database
    registry: Registry

    def procedure(self, name: str, /, **options: Unpack[ProcedureOptions]) -> Task[..., None]:
        """Return a task for a stored procedure: `app.procedure("reporting.close_day").enqueue(day="2026-11-01")`.

        It must be on the allow-list (`sereno procedure allow`). `target`: another database. `task`: another name for
        the task. `tenant`: the tenant of its jobs. `tenants`: False by default. Other options: as in `@app.task`.
        """
        definition, common = declared(self.database, name, options)
        self.registry.add(definition)
        return Task(definition, self.database, self.registry, common)

    async def call_procedure(
        self,
        ctx: Context,
        name: str | tuple[str, str],
        params: Mapping[str, Any] | None = None,
        *,
        target: str = HERE,
        timeout: Duration | None = None,
    ) -> ProcedureResult:
        """Call a procedure of the allow-list from within a task, where only the job's arguments say which.

        name: "reporting.close_day", or schema and name. timeout: shorter than that of the allow-list; never longer.
        The checks, log lines and stored result are those of `procedure`: the job is dead, and nothing has run, if the
        procedure is not allowed or the parameters do not fit. The result of an attempt's last call is stored.
        """
        if ctx.queue in self.registry.carried:
            raise ConfigurationError(
                f"queue {ctx.queue} has a carrier, and the result of a call is stored with the row of its job: call "
                "procedures in another queue, or with a task of app.procedure"
            )
        try:
            procedure = parse_name(name if isinstance(name, str) else str(ProcedureName(*name)))
            longest = math.inf if timeout is None else check_timeout("timeout", timeout)
        except (ConfigurationError, InvalidArguments) as error:
            raise Dead(f"wrong call: {error}") from None
        return await call_allowed(self.database, ctx, target, procedure, params or {}, longest)
