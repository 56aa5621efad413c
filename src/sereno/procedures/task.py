"""A stored procedure as a task: what a worker does for a job that calls one.

    allowed? ▶ connect as the login for procedures ▶ is the login harmless? ▶ still what was allowed? ▶ do the
    parameters fit? ▶ call it ▶ keep what it brought

Whatever is wrong before the call ends the job as dead, with nothing run. What goes wrong with the connection, or in the
procedure itself, is retried as the task says.
"""

import asyncio
import logging
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
from sereno.procedures.procedure import HERE, TASK_PREFIX, ProcedureName, Signature, check_params, parse_name, still
from sereno.procedures.result import Notices, Result
from sereno.procedures.store import AllowedProcedure
from sereno.procedures.targets.address import Targets
from sereno.procedures.targets.contract import Session, Timeouts
from sereno.telemetry.log_events import emit
from sereno.worker.context import Context

# Seconds between tries to write down what a call brought.
KEEP_AGAIN_AFTER = (0.2, 1.0, 3.0)


class ProcedureOptions(TypedDict, total=False):
    """How the jobs of a procedure run. `tenant`: whose they are. The others are those of `@app.task`.

    `timeout`: none by default, because a call has one of its own, which whoever allowed it has chosen.
    `tenants`: False by default: no token of one tenant can have the procedure run over HTTP.
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
    """The task that calls it, and what its jobs have in common. Nothing connects."""
    target = options.get("target", HERE)
    try:
        procedure = parse_name(name)
    except InvalidArguments as error:
        raise ConfigurationError(str(error)) from None
    task = options.get("task") or _task_name(target, procedure)

    # Inside, so that a job whose process died is not started in one of its own: it is not to blame for that.
    async def call(ctx: Context, params: dict[str, Any]) -> None:
        await _call(database, ctx, target, procedure, params)

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
    definition = replace(plain, arguments=arguments, rule=keys)
    common = JobOptions(queue=definition.queue, priority=definition.priority, tenant=options.get("tenant"))
    return definition, common.checked()


def _task_name(target: str, procedure: ProcedureName) -> str:
    """`procedure.reporting.close_day`; of another database, with its name before."""
    parts = [*([] if target == HERE else [target]), *procedure]
    if not all(part.replace("_", "").isalnum() and part.isascii() for part in procedure):
        raise ConfigurationError(
            f'{procedure} makes no name for a task: give it one, as in app.procedure(…, task="close_day")'
        )
    return TASK_PREFIX + ".".join(parts)


async def _call(database: Database, ctx: Context, target: str, name: ProcedureName, params: Mapping[str, Any]) -> None:
    allowed = await database.arun_one(procedures.find(target, name))
    if allowed is None:
        raise Dead(f"{name} is not allowed on {target}: sereno procedure allow '{name}'{_on(target)}")
    targets = Targets(database.settings, lambda: database.url)
    notices = Notices()
    async with targets.find(target).open() as session:
        values = await prepared(session, allowed, params, _facts(ctx))
        began = monotonic()
        try:
            result = await session.call(
                allowed.signature, values, Timeouts(allowed.timeout, allowed.lock_timeout), notices
            )
        finally:
            _tell(ctx, notices)
    await _keep(database, ctx, allowed, monotonic() - began, result)


async def prepared(
    session: Session, allowed: AllowedProcedure, params: Mapping[str, Any], facts: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The values for the call; Dead where it is not what was allowed, or the parameters do not fit."""
    await session.check_login()
    signature: Signature = allowed.signature
    found = await session.resolve(signature.full_name)
    changed = still(signature, found)
    if changed is not None:
        raise Dead(f"{changed}. Look at it, then: sereno procedure allow '{allowed.name}'{_on(allowed.target)}")
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


def _tell(ctx: Context, notices: Notices) -> None:
    """What it said, in the log, with the job that it belongs to."""
    of_job = _of_job(ctx)
    for notice in notices.heard:
        level = logging.WARNING if notice.is_warning else logging.INFO
        emit(level, "procedure.notice", str(notice), **of_job)
    if notices.unheard:
        emit(logging.INFO, "procedure.notice", f"and {notices.unheard:,} more notices", **of_job)


async def _keep(database: Database, ctx: Context, allowed: AllowedProcedure, seconds: float, result: Result) -> None:
    """It has run: that its result cannot be written down is no reason to run it again."""
    kept, days = result.kept(), database.settings.keep_history_days
    for wait in (*KEEP_AGAIN_AFTER, None):
        try:
            await database.arun_one(procedures.keep_run(ctx.fence, allowed, seconds, kept, days))
            return
        except (DatabaseUnavailable, psycopg.Error) as error:
            if wait is None or not isinstance(error, DatabaseUnavailable):
                words = f"job {ctx.job_id}: what {allowed.name} brought could not be kept: {error}"
                emit(logging.WARNING, "procedure.unkept", words, **_of_job(ctx))
                return
            await asyncio.sleep(wait)


def _of_job(ctx: Context) -> dict[str, Any]:
    """What a line of the log says of the job."""
    return dict(ctx.log.extra or {})


def _on(target: str) -> str:
    return "" if target == HERE else f" --target {target}"
