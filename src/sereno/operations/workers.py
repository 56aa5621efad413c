"""Workers as a person sees them: the sessions that live, and those that ended lately."""

from sereno.store import insights
from sereno.store.sights import SessionRow
from sereno.store.statement import Operation


def list_workers() -> Operation[list[SessionRow]]:
    """Alive first, then those that ended within a day."""
    return insights.sessions()
