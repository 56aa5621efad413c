"""A job whose arguments this code cannot decode may belong to another release: it is left for a worker of that one.

Without the setting `release`, or while all live workers have the same one, no worker can decode it, and it is dead.
"""

from sereno.database.database import Database
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import DatabaseUnavailable
from sereno.jobs.attempt import Dead, Ending, Settlement
from sereno.jobs.job import ClaimedJob

_sql = queries("worker/release_wait")
# Seconds until the job is tried again: a quarter of its age, within these bounds.
SHORTEST_WAIT, LONGEST_WAIT = 1.0, 30.0
AGE_SHARE = 0.25
# Seconds within which a worker that has ended is expected to be back, with the same release.
RESTART = 60.0
# How the reason of such an attempt begins; by it the first one is found again.
LEFT = "left for a worker of another release"


def waiting_since(job: ClaimedJob, release: str) -> Operation[tuple[list[str], float]]:
    """Return the other releases that could run the job, and the seconds since it was first left for one."""
    rows = yield Statement(
        _sql["waiting_since"],
        {"id": job.id, "queue": job.queue, "task": job.task, "release": release, "restart": RESTART},
    )
    return list(rows[0][0]), float(rows[0][1])


def decision(others: list[str], age: float, grace: float, reason: str) -> Ending:
    """Return what becomes of a job with undecodable arguments that was first seen `age` seconds ago."""
    if not others or age >= grace:
        return Dead(reason)
    wait = min(LONGEST_WAIT, max(SHORTEST_WAIT, age * AGE_SHARE), max(SHORTEST_WAIT, grace - age))
    return Settlement("release", delay=wait, reason=f"{LEFT} ({', '.join(others[:5])}): {reason}")


async def undecodable(database: Database, job: ClaimedJob, reason: str) -> Ending:
    """Return the ending of a job whose arguments this code cannot decode."""
    settings = database.settings
    if settings.release is None:
        return Dead(reason)
    try:
        others, age = await database.arun(waiting_since(job, settings.release))
    except DatabaseUnavailable as error:
        return Settlement("release", delay=SHORTEST_WAIT, reason=f"{LEFT}, which could not be looked up: {error}")
    return decision(others, age, settings.release_grace, reason)
