"""Workers as a person sees them: the sessions that live, and those that ended lately."""

from sereno.database.statement import Operation
from sereno.jobs import queries as job_queries
from sereno.jobs.rows import SessionRow


def list_workers() -> Operation[list[SessionRow]]:
    """Alive first, then those that ended within a day."""
    return job_queries.sessions()
