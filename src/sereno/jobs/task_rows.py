"""Stores task declarations, for servers that do not have the application's code."""

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.limits.store import declare as declare_limits
from sereno.jobs.task import OWN_TASKS, Registry

_sql = queries("jobs/task_rows")


def declare_code(registry: Registry, service: str) -> Operation[None]:
    """Store the tasks and limits that a service declares."""
    yield from declare_limits(registry, service)
    declared = [{"name": task.name, "tenants": task.is_open_to_tenants} for task in registry]
    if declared:
        yield Statement(_sql["declare"], {"tasks": msgspec.json.encode(declared).decode(), "service": service})


def open_to_tenants() -> Operation[dict[str, bool]]:
    """Return every declared task, and whether all services that declare it leave it open to tenants."""
    rows = yield Statement(_sql["open_to_tenants"])
    return {name: is_open and not name.startswith(OWN_TASKS) for name, is_open in rows}
