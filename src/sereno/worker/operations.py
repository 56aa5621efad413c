"""Operations on workers for the CLI, the API and the dashboard."""

from sereno.database.statement import Operation
from sereno.jobs import queries as job_queries
from sereno.jobs.rows import SessionRow


def list_workers() -> Operation[list[SessionRow]]:
    """Return the sessions that are alive, then those that ended within a day."""
    return job_queries.sessions()
