"""Builds the limit, fair and order keys of a job from rules, options and arguments."""

from collections.abc import Iterable

from sereno.database.json_values import encoder
from sereno.jobs.job import JobOptions
from sereno.jobs.limits.limit import KeyRule, merge_keys
from sereno.jobs.task import TaskDefinition


def keys_of(
    task: TaskDefinition, rules: Iterable[KeyRule | None], options: JobOptions, arguments: bytes
) -> bytes | None:
    """Return the keys of a job as JSON; None when no rule applies."""
    words = {"tenant": options.tenant, "task": task.name, "queue": options.queue or task.queue}
    keys = merge_keys(rules, task.arguments.keyed(arguments) | words)
    return encoder.encode(keys) if keys else None
