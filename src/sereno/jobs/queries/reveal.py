"""Job arguments: masked by default; reading them unmasked is written to the audit log."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.access.masking import masked
from sereno.database.statement import Operation
from sereno.jobs.operations import JobDetail


def hidden(detail: JobDetail) -> JobDetail:
    """Return the job with likely secrets masked in its arguments, its result and step results."""
    steps = [replace(step, result=masked(step.result)) for step in detail.steps]
    job = replace(detail.job, args=masked(detail.job.args), result=masked(detail.job.result))
    return replace(detail, job=job, steps=steps)


def reveal(detail: JobDetail, *, actor: str | None = None) -> Operation[Mapping[str, Any]]:
    """Return the unmasked arguments, and write the actor to the audit log."""
    job = detail.job
    audited = {"task": job.task, "tenant": job.tenant}
    yield from audit.audit(actor or default_actor(), "job.reveal", f"job {job.id}", audited)
    return job.args
