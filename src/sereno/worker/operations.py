"""Operations on workers for the CLI, the API and the dashboard."""

from sereno.database.statement import Operation
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.rows import SessionRow


def list_workers() -> Operation[list[SessionRow]]:
    """Return the sessions that are alive, then those that ended within a day."""
    return job_queries.sessions()
