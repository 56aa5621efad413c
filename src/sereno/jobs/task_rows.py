"""Stores task declarations, for servers that do not have the application's code."""

from collections.abc import Mapping
from typing import Any

import msgspec

from sereno.database.json_values import encoder, stored
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import InvalidArguments
from sereno.jobs.job import JobOptions, NewJob
from sereno.jobs.limits.store import declare as declare_limits
from sereno.jobs.parameters import TaskParameter, parameters_of
from sereno.jobs.task import OWN_TASKS, Registry, TaskDefinition

_sql = queries("jobs/task_rows")
_some = msgspec.json.Decoder(list[TaskParameter])


class DeclaredTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task as the code of a service declares it. `parameters`: None for a procedure.

    `tenants`: whether a token of one tenant may run it. `services`: those that declare it, the newest first.
    """

    name: str
    queue: str | None
    priority: int | None
    version: int
    tenants: bool
    parameters: list[TaskParameter] | None
    services: list[str] = []


_task = msgspec.json.Decoder(DeclaredTask)


def declare_code(registry: Registry, service: str) -> Operation[None]:
    """Store the tasks and limits that a service declares."""
    yield from declare_limits(registry, service)
    declared = [declared_by_code(task) for task in registry]
    if declared:
        yield Statement(_sql["declare"], {"tasks": encoder.encode(declared).decode(), "service": service})


def declared_by_code(task: TaskDefinition) -> DeclaredTask:
    """Return what other processes have to know of a task."""
    return DeclaredTask(
        name=task.name,
        queue=task.queue,
        priority=task.priority,
        version=task.version,
        tenants=task.is_open_to_tenants,
        parameters=parameters_of(task.arguments),
    )


def open_to_tenants() -> Operation[dict[str, bool]]:
    """Return every declared task, and whether all services that declare it leave it open to tenants."""
    rows = yield Statement(_sql["open_to_tenants"])
    return {name: is_open and not name.startswith(OWN_TASKS) for name, is_open in rows}


def declared(name: str | None = None) -> Operation[list[DeclaredTask]]:
    """Return the declared tasks by name, without those of the engine; or the one of this name."""
    rows = yield Statement(_sql["declared"], {"name": name, "own": OWN_TASKS})
    return [_task.decode(row[0]) for row in rows]


def declared_job(
    task: DeclaredTask, arguments: Mapping[str, Any], options: JobOptions, limit: int
) -> Operation[NewJob]:
    """Return a job of a task whose code is elsewhere. Its worker checks the types; here only the names are known."""
    problem = _problem(task, arguments)
    if problem is not None:
        raise InvalidArguments(f"task {task.name}: {problem}")
    raw = stored(arguments, lambda why: InvalidArguments(f"task {task.name}: {why}"))
    if len(raw) > limit:
        raise InvalidArguments(
            f"task {task.name}: {len(raw):,} bytes of arguments, the limit is {limit:,}: store the data elsewhere and "
            "pass its id"
        )
    chosen = msgspec.structs.replace(
        options,
        queue=options.queue or task.queue or "default",
        priority=task.priority if options.priority is None else options.priority,
    ).checked()
    rows = yield Statement(
        _sql["keys_for"],
        {"task": task.name, "queue": chosen.queue, "tenant": chosen.tenant, "args": raw.decode()},
    )
    keys = None if rows[0][0] is None else rows[0][0].encode()
    requires = stored({"version": task.version}, InvalidArguments) if task.version > 1 else None
    return NewJob(task.name, raw, chosen, keys, requires=requires)


def _problem(task: DeclaredTask, arguments: Mapping[str, Any]) -> str | None:
    """Return why these arguments cannot be right."""
    if task.parameters is None:
        return None
    names = [each.name for each in task.parameters]
    takes = f"it takes ({', '.join(names)})"
    if encrypted := [each.name for each in task.parameters if each.encrypted]:
        return f"its argument {encrypted[0]} is stored encrypted: enqueue it from the application, which has the key"
    if unknown := [name for name in arguments if name not in names]:
        return f"there is no argument {unknown[0]!r:.60}; {takes}"
    if missing := [each.name for each in task.parameters if each.required and each.name not in arguments]:
        return f"the argument {missing[0]} is missing; {takes}"
    return None
