"""Workers as a person sees them: the sessions that live, and those that ended lately."""

from sereno.database.statement import Operation
from sereno.store import insights
from sereno.store.sights import SessionRow


def list_workers() -> Operation[list[SessionRow]]:
    """Alive first, then those that ended within a day."""
    return insights.sessions()
