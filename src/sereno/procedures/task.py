"""A stored procedure as a task: what a worker does for a job that calls one.

    allowed? ▶ connect with the login for procedures ▶ is the login safe? ▶ signature unchanged? ▶ do the
    parameters fit? ▶ call it ▶ store the result

An error before the call makes the job dead, and nothing has run. An error of the connection or in the procedure itself
is retried according to the task's retry policy.
"""

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import Any, TypedDict

import psycopg

from sereno.database.database import Database
from sereno.duration import Duration
from sereno.errors import ConfigurationError, DatabaseUnavailable, InvalidArguments
from sereno.jobs.attempt import Dead
from sereno.jobs.job import DEFAULT_PRIORITY, JobOptions
from sereno.jobs.limits.limit import Limits, rule
from sereno.jobs.retry import Backoff
from sereno.jobs.task import TaskDefinition, define
from sereno.procedures import store as procedures
from sereno.procedures.open_arguments import ProcedureArguments
from sereno.procedures.procedure import (
    HERE,
    TASK_PREFIX,
    ProcedureName,
    ProcedureSignature,
    check_params,
    parse_name,
    still,
)
from sereno.procedures.result import ProcedureNotices, ProcedureResult
from sereno.procedures.rows import AllowedProcedure
from sereno.procedures.targets.address import Targets
from sereno.procedures.targets.contract import Session, Timeouts
from sereno.telemetry.log_events import emit
from sereno.worker.context import Context

# Delays in seconds between attempts to store the result of a call.
KEEP_AGAIN_AFTER = (0.2, 1.0, 3.0)


class ProcedureOptions(TypedDict, total=False):
    """How the jobs of a procedure run. `tenant` owns them. The others are those of `@app.task`.

    `timeout`: none by default, because a call has its own, set when the procedure was allowed.
    `tenants`: False by default: no tenant's token can run the procedure over HTTP.
    """

    target: str
    task: str
    queue: str
    priority: int
    retry: Backoff | int | None
    timeout: Duration | None
    tenant: str
    concurrency: Limits
    rate: Limits
    fair_key: str
    order_key: str
    dead_blocks: bool
    tenants: bool


def declared(database: Database, name: str, options: ProcedureOptions) -> tuple[TaskDefinition, JobOptions]:
    """Return the task that calls the procedure, and the common options of its jobs. Does not connect."""
    target = options.get("target", HERE)
    try:
        procedure = parse_name(name)
    except InvalidArguments as error:
        raise ConfigurationError(str(error)) from None
    task = options.get("task") or _task_name(target, procedure)

    # Async, so that a job whose process died is not isolated in a process of its own: the procedure did not cause it.
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        await call_allowed(database, ctx, target, procedure, params)

    plain = define(
        call,
        context=Context,
        name=task,
        queue=options.get("queue", "default"),
        priority=options.get("priority", DEFAULT_PRIORITY),
        retry=options.get("retry"),
        timeout=options.get("timeout"),
        tenants=options.get("tenants", False),
    )
    keys = rule(
        task,
        options.get("concurrency"),
        options.get("rate"),
        options.get("fair_key"),
        options.get("order_key"),
        dead_blocks=options.get("dead_blocks", False),
    )
    arguments = ProcedureArguments(task, target, procedure, keys.words)
    definition = replace(plain, arguments=arguments, rule=keys, needs_row=True)
    common = JobOptions(queue=definition.queue, priority=definition.priority, tenant=options.get("tenant"))
    return definition, common.checked()


def _task_name(target: str, procedure: ProcedureName) -> str:
    """Return `procedure.reporting.close_day`; for another database, with the target's name before the schema."""
    parts = [*([] if target == HERE else [target]), *procedure]
    if not all(part.replace("_", "").isalnum() and part.isascii() for part in procedure):
        raise ConfigurationError(
            f'{procedure} cannot be used as a task name: give it one, as in app.procedure(…, task="close_day")'
        )
    return TASK_PREFIX + ".".join(parts)


async def call_allowed(
    database: Database,
    ctx: Context,
    target: str,
    name: ProcedureName,
    params: Mapping[str, Any],
    timeout: float = math.inf,
) -> ProcedureResult:
    """Call the procedure if it is allowed, and store the result. `timeout`: in seconds; only ever a shorter one."""
    allowed = await database.arun_one(procedures.find(target, name))
    if allowed is None:
        raise Dead(f"{name} is not allowed on {target}: sereno procedure allow '{name}'{_on(target)}")
    targets = Targets(database.settings, lambda: database.url)
    notices = ProcedureNotices()
    async with targets.find(target).open() as session:
        values = await prepared(session, allowed, params, _facts(ctx))
        began = monotonic()
        try:
            timeouts = Timeouts(min(timeout, allowed.timeout), allowed.lock_timeout)
            result = await session.call(allowed.signature, values, timeouts, notices)
        finally:
            _log_notices(ctx, notices)
    await _store_run(database, ctx, allowed, monotonic() - began, result)
    return result


async def prepared(
    session: Session, allowed: AllowedProcedure, params: Mapping[str, Any], facts: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the values for the call. Raises Dead if the signature has changed or the parameters do not fit."""
    await session.check_login()
    signature: ProcedureSignature = allowed.signature
    found = await session.resolve(signature.full_name)
    changed = still(signature, found)
    if changed is not None:
        raise Dead(f"{changed}. Review it, then run: sereno procedure allow '{allowed.name}'{_on(allowed.target)}")
    try:
        check_params(signature, params, allowed.given, is_only=len(found) == 1)
        given = {name: facts[fact] for name, fact in allowed.given.items()}
        return await session.convert(signature, {**params, **given})
    except InvalidArguments as error:
        raise Dead(f"wrong parameters: {error}") from None


def _facts(ctx: Context) -> dict[str, Any]:
    return {
        "job": ctx.job_id,
        "attempt": ctx.attempt,
        "tenant": ctx.tenant,
        "trace": ctx.trace,
        "planned_at": None if ctx.fire is None else ctx.fire.at.isoformat(),
    }


def _log_notices(ctx: Context, notices: ProcedureNotices) -> None:
    """Log the notices of the procedure with the fields of its job."""
    of_job = _of_job(ctx)
    for notice in notices.collected:
        level = logging.WARNING if notice.is_warning else logging.INFO
        emit(level, "procedure.notice", str(notice), **of_job)
    if notices.omitted:
        emit(logging.INFO, "procedure.notice", f"and {notices.omitted:,} more notices", **of_job)


async def _store_run(
    database: Database, ctx: Context, allowed: AllowedProcedure, seconds: float, result: ProcedureResult
) -> None:
    """Store the result. If that fails, the job still succeeds: the procedure has run and must not run again."""
    stored, days = result.for_history(), database.settings.keep_history_days
    for wait in (*KEEP_AGAIN_AFTER, None):
        try:
            await database.arun_one(procedures.keep_run(ctx.fence, allowed, seconds, stored, days))
            return
        except (DatabaseUnavailable, psycopg.Error) as error:
            if wait is None or not isinstance(error, DatabaseUnavailable):
                text = f"job {ctx.job_id}: the result of {allowed.name} could not be stored: {error}"
                emit(logging.WARNING, "procedure.result_lost", text, **_of_job(ctx))
                return
            await asyncio.sleep(wait)


def _of_job(ctx: Context) -> dict[str, Any]:
    """Return the log fields of the job."""
    return dict(ctx.log.extra or {})


def _on(target: str) -> str:
    return "" if target == HERE else f" --target {target}"
