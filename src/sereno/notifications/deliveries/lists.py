"""Lists of deliveries by filter and search. Every list is bounded."""

from collections.abc import Mapping
from typing import Any

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.filters import DeliveryFilter
from sereno.notifications.deliveries.delivery import FAILED
from sereno.notifications.rows import DeliveryLine

_sql = queries("notifications/deliveries/lists")

# Newest deliveries that a list checks; and newest ones of each failed state, of a subject and of a recipient.
WINDOW = 100_000
# Newest events of a subject whose deliveries a list has.
EVENT_WINDOW = 10_000


def deliveries(
    wanted: DeliveryFilter, *, before: int | None, limit: int, window: int | None = None
) -> Operation[list[DeliveryLine]]:
    """Return deliveries. `window`: newest ones, and newest failed ones of each state, that are checked."""
    params, window = wanted.params(), window or WINDOW
    bounds = {"before": before, "limit": limit, "window": window, "events": EVENT_WINDOW}
    part = limit if _is_simple(params) else window
    chosen = {"along": _way_to(params), "part": part}
    rows = yield Statement(_sql["list"], params | bounds | chosen)
    return [msgspec.json.decode(row[0], type=DeliveryLine) for row in rows]


def searches_newest(wanted: DeliveryFilter) -> bool:
    """Return whether a list checks a window of the newest deliveries, and finds no older ones."""
    params = wanted.params()
    if _way_to(params) != "newest" or wanted.is_empty:
        return False
    return not (params["states"] and FAILED.issuperset(params["states"]) and _is_simple(params))


def _is_simple(params: Mapping[str, Any]) -> bool:
    """Return whether the table of failed deliveries can check all conditions."""
    return all(params[name] is None for name in ("since", "type", "terms"))


def _way_to(params: Mapping[str, Any]) -> str:
    """Return the condition whose index leads to the deliveries."""
    ways = (("id", "ids"), ("event", "event"), ("subject", "subject"), ("recipient", "recipient"))
    return next((way for way, name in ways if params[name] is not None), "newest")
