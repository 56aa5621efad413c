"""Log lines about attempts. They are made of plain values only, so that none of them can raise."""

import logging

from sereno.error_text import describe, storable
from sereno.jobs.attempt import Ending, Settlement
from sereno.jobs.job import ClaimedJob
from sereno.telemetry.log_events import emit, logger

_LEVELS = {"dead": logging.ERROR, "crash": logging.ERROR, "retry": logging.WARNING}


def logs_successes() -> bool:
    return logger.isEnabledFor(logging.DEBUG)


def report(job: ClaimedJob, decision: Settlement, ran: float, session: int, fingerprint: str | None = None) -> None:
    """How an attempt ended."""
    outcome, error = decision.outcome, decision.error
    what = decision.reason if decision.reason is None else repr(decision.reason)
    if what is None and error is not None:
        what = str(error)
    level = _LEVELS.get(outcome, logging.DEBUG if outcome == "succeeded" else logging.INFO)
    emit(
        level,
        f"job.{outcome}",
        f"job {job.id} {job.task}: {outcome}" + (f": {what}" if what is not None else ""),
        job_id=job.id,
        task=job.task,
        queue=job.queue,
        tenant=job.tenant,
        attempt=job.attempt,
        duration_ms=round(ran * 1000, 1),
        session=session,
        trace_id=job.trace,
        error_type=None if error is None else error.name,
        fingerprint=fingerprint,
    )


def report_after_success(job: ClaimedJob, ending: Ending) -> None:
    """What a handler says after its own transaction has settled the job changes nothing."""
    said = describe(ending) if isinstance(ending, BaseException) else storable(ending)
    emit(
        logging.WARNING,
        "job.error_after_success",
        f"job {job.id} {job.task}: {said}, after its own transaction had settled it as succeeded",
        job_id=job.id,
        task=job.task,
    )
