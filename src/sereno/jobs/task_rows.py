"""Tasks as rows: what the code says of them, for a server that does not have the code."""

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.jobs.limits.store import declare as declare_limits
from sereno.jobs.task import OWN_TASKS, Registry

_sql = queries("jobs/task_rows")


def declare_code(registry: Registry, service: str) -> Operation[None]:
    """Write what the code of a service says of its tasks and limits."""
    yield from declare_limits(registry, service)
    said = [{"name": task.name, "tenants": task.is_open_to_tenants} for task in registry]
    if said:
        yield Statement(_sql["declare"], {"tasks": msgspec.json.encode(said).decode(), "service": service})


def open_to_tenants() -> Operation[dict[str, bool]]:
    """Every task that was declared, and whether all services that have it leave it open to tenants."""
    rows = yield Statement(_sql["open_to_tenants"])
    return {name: is_open and not name.startswith(OWN_TASKS) for name, is_open in rows}
