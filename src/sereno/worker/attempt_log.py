"""Log lines about attempts, built from plain values only, so that formatting cannot raise."""

import logging

from sereno.error_text import describe, storable
from sereno.jobs.attempt import Ending, Settlement
from sereno.jobs.job import ClaimedJob
from sereno.telemetry.log_events import emit, logger
from sereno.telemetry.tracing import trace_id

_LEVELS = {"dead": logging.ERROR, "crash": logging.ERROR, "retry": logging.WARNING}


def logs_successes() -> bool:
    return logger.isEnabledFor(logging.DEBUG)


def report(job: ClaimedJob, decision: Settlement, ran: float, session: int, fingerprint: str | None = None) -> None:
    """Log the outcome of an attempt."""
    outcome, error = decision.outcome, decision.error
    detail = decision.reason if decision.reason is None else repr(decision.reason)
    if detail is None and error is not None:
        detail = str(error)
    level = _LEVELS.get(outcome, logging.DEBUG if outcome == "succeeded" else logging.INFO)
    emit(
        level,
        f"job.{outcome}",
        f"job {job.id} {job.task}: {outcome}" + (f": {detail}" if detail is not None else ""),
        job_id=job.id,
        task=job.task,
        queue=job.queue,
        tenant=job.tenant,
        attempt=job.attempt,
        duration_ms=round(ran * 1000, 1),
        session=session,
        trace_id=trace_id(job.trace),
        error_type=None if error is None else error.name,
        fingerprint=fingerprint,
    )


def report_after_success(job: ClaimedJob, ending: Ending) -> None:
    """Log what a handler raised or returned after its own transaction had settled the job; the outcome stays."""
    if isinstance(ending, Settlement) and ending.outcome == "succeeded":
        text: object = "it returned a result, which is not stored: call ctx.set_result in the transaction"
    elif isinstance(ending, Settlement):
        # What it would have been, with the decrypted arguments hidden.
        text = ending.error or ending.reason
    else:
        text = describe(ending) if isinstance(ending, BaseException) else storable(ending)
    emit(
        logging.WARNING,
        "job.error_after_success",
        f"job {job.id} {job.task}: {text}, after its own transaction had settled it as succeeded",
        job_id=job.id,
        task=job.task,
    )
