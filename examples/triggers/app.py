"""One task for every trigger: it calls the procedure that the trigger's row names, if it is on the allow-list.

A trigger is a row, a schedule of sereno. Its arguments say what is called, and how: the columns of the original design.
"""

from typing import Annotated, Any

from msgspec import Meta

from sereno import Backoff, Context, Limit, Sereno

app = Sereno(service="triggers")

# Checked when a trigger is added, and again when it runs.
Retries = Annotated[int, Meta(ge=0, le=100)]
Seconds = Annotated[float, Meta(gt=0, le=7 * 86400)]

# One call at a time for each key, over all triggers, procedures and workers.
one_per_key = Limit(1, key="{concurrency_key}", name="triggers.concurrency_key")


@app.task(name="triggers.call", queue="triggers", concurrency=one_per_key, timeout=None, tenants=False)
async def call(
    ctx: Context,
    schema: str,
    procedure: str,
    concurrency_key: str,
    params: dict[str, Any] | None = None,
    max_retries: Retries = 5,
    backoff_seconds: Seconds = 60,
    timeout_seconds: Seconds | None = None,
    target: str = "here",
) -> None:
    """Call schema.procedure with these parameters.

    concurrency_key: triggers that share it never run at the same time; "{key}", the trigger's own, if it has none.
    backoff_seconds: after the first failure; doubled by each further one, up to an hour. timeout_seconds: of the call,
    if it is shorter than that of the allow-list. target: another database, by its name in SERENO_PROCEDURE_TARGETS.
    """
    ctx.retry = Backoff(max_retries, first=backoff_seconds, cap="1h")
    await app.call_procedure(ctx, (schema, procedure), params, target=target, timeout=timeout_seconds)
