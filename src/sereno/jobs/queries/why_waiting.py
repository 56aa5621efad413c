"""Explains what a waiting job waits for: other jobs, or the jobs of a group."""

from sereno.database.statement import Operation
from sereno.jobs.group_store import GroupRow
from sereno.jobs.queries import links
from sereno.jobs.queries.links import LinkedJob, LinkedJobs
from sereno.jobs.queries.rows import JobRow


def waits_for(row: JobRow, tenant: str | None) -> Operation[list[str]]:
    """Return sentences. `tenant`: of the reader, so that no data of other tenants is shown."""
    sentences: list[str] = []
    jobs = yield from links.open_predecessors(row.id, tenant=tenant)
    if jobs.items:
        sentences.append(_jobs(jobs))
    if row.after_group is not None:
        group = yield from links.group_of(row.after_group, tenant)
        sentences.append(f"It waits for the jobs of group {row.after_group}." if group is None else _group(group))
        if group is not None and group.dead.value and group.on_dead == "wait":
            retry = f"sereno job retry --state dead --search group:{group.id} --yes"
            sentences.append(f"It waits until the dead jobs are retried and succeed: {retry}")
    return sentences or ["What it waited for has ended; a worker will make it ready within moments."]


def _jobs(jobs: LinkedJobs) -> str:
    number = "1 job" if jobs.total.value == 1 else f"{jobs.total} jobs"
    named = ", ".join(_named(job) for job in jobs.items)
    more = f", and {jobs.more} more" if jobs.more.value else ""
    return f"It waits for {number}: {named}{more}."


def _named(job: LinkedJob) -> str:
    match job.state:
        case None:
            return str(job.id)
        case "dead":
            return f"{job.id} ({job.task}, dead: retry it with `sereno job retry {job.id}`)"
        case _:
            return f"{job.id} ({job.task}, {job.state})"


def _group(group: GroupRow) -> str:
    dead = {0: "", 1: ", 1 is dead"}.get(group.dead.value, f", {group.dead} are dead")
    remain = "job remains" if group.total == 1 else "jobs remain"
    return (
        f"It waits for group {group.id}: {group.remaining:,} of {group.total:,} {remain}{dead}. "
        f"To see them: sereno group show {group.id}"
    )
