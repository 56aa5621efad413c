"""What a job was given: with secrets hidden, as everybody sees it, or in the clear for somebody who is written down."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.access.masking import masked
from sereno.database.statement import Operation
from sereno.jobs.operations import JobDetail


def hidden(detail: JobDetail) -> JobDetail:
    """One job without what looks like a secret in its arguments and in what its steps brought."""
    steps = [replace(step, result=masked(step.result)) for step in detail.steps]
    return replace(detail, job=replace(detail.job, args=masked(detail.job.args)), steps=steps)


def reveal(detail: JobDetail, *, actor: str | None = None) -> Operation[Mapping[str, Any]]:
    """The arguments as they are. Who has seen them is part of the audit."""
    job = detail.job
    audited = {"task": job.task, "tenant": job.tenant}
    yield from audit.audit(actor or default_actor(), "job.reveal", f"job {job.id}", audited)
    return job.args
