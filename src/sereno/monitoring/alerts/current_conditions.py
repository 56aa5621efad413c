"""The current conditions that need an operator, of the whole system or of one tenant."""

from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import InvalidArguments
from sereno.monitoring import health_queries
from sereno.monitoring.alerts import condition_queries
from sereno.monitoring.alerts.condition import KINDS, AlertCondition, filled
from sereno.settings import Settings
from sereno.text import check_text

__all__ = ["KINDS", "AlertCondition", "current_conditions", "filled"]

SHORTEST_LATE, LONGEST_LATE = 1.0, 86400.0


def current_conditions(
    settings: Settings, *, tenant: str | None = None, late: Duration = condition_queries.LATE
) -> Operation[list[AlertCondition]]:
    """Return the conditions, most severe first. `late`: how long a ready job may wait. `tenant`: only of this one.

    Every query is bounded, so that it can run every few seconds.
    """
    check_text("tenant", tenant)
    bound = seconds(late)
    if not SHORTEST_LATE <= bound <= LONGEST_LATE:
        raise InvalidArguments("late must be from one second to one day")
    if tenant is None:
        applied = yield from health_queries.applied()
        if applied is None:
            return condition_queries.schema_conditions(applied, settings.schema)
    return (yield from condition_queries.current_conditions(settings, tenant=tenant, late=bound))
