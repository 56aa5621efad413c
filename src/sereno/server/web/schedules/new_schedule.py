"""The values with which the form of a new schedule starts."""

from types import SimpleNamespace
from typing import Any

from sereno.server.web.page_request import PageRequest
from sereno.server.web.schedules.rule_text import exact

# Defaults of the optional fields of a rule.
RULE = {
    "interval": None,
    "count_from": "plan",
    "phase": 0,
    "at": "",
    "expression": "",
    "spread": 0,
    "dst_gap": "shift",
    "dst_fold": "first",
}
# Fields that stay empty get the defaults of the API.
_EMPTY = (
    *("missed_limit", "missed_window", "max_lateness", "expires_after", "starts_at", "ends_at", "max_fires"),
    *("disable_after", "priority", "declared_by"),
)
_ROW = SimpleNamespace(
    **dict.fromkeys(_EMPTY), key="", task="", queue="", tags=[], args={}, missed="latest", overlap="skip"
)


def new_schedule(page: PageRequest) -> dict[str, Any]:
    """Return the values of the form: daily, in the time zone of the viewer."""
    return {
        "is_new": True,
        "row": _ROW,
        "rule": RULE | {"at": "03:00"},
        "kind": "daily",
        "zone": page.zone_name,
        "exact": exact,
        "own_tasks": list(page.context.app.registry.names),
    }
