"""A task: a named function and how it is to be run. And the registry: the tasks of one application, never a global."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sereno.domain.arguments import Arguments
from sereno.domain.duration import Duration, seconds
from sereno.domain.job import DEFAULT_PRIORITY, PRIORITIES, check_queue_name
from sereno.domain.retry import Backoff
from sereno.errors import ConfigurationError, UnknownTask

DEFAULT_TIMEOUT = "10m"
LARGEST_BATCH = 1000


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """What a worker needs to know of a task."""

    name: str
    function: Callable[..., Any]
    arguments: Arguments
    queue: str
    priority: int
    retry: Backoff
    timeout: float | None
    isolate: bool
    batch: int
    history: bool
    settle_at_once: bool
    is_async: bool

    def __hash__(self) -> int:
        return hash(self.name)


def define(
    function: Callable[..., Any],
    *,
    context: type,
    name: str | None = None,
    queue: str = "default",
    priority: int = DEFAULT_PRIORITY,
    retry: Backoff | int | None = None,
    timeout: Duration | None = DEFAULT_TIMEOUT,
    isolate: bool = False,
    batch: int = 0,
    history: bool = True,
    settle_at_once: bool = False,
) -> TaskDefinition:
    """Check a declaration and make the definition."""
    chosen = name or str(getattr(function, "__name__", ""))
    if not chosen.replace(".", "").replace("_", "").replace("-", "").isalnum():
        raise ConfigurationError(f"{chosen!r} is no name for a task: letters, digits, '_', '-' and '.'; give name=")
    if priority not in PRIORITIES:
        raise ConfigurationError(f"task {chosen}: priority {priority} is out of range: 0 (first) to 9 (last)")
    if not 0 <= batch <= LARGEST_BATCH:
        raise ConfigurationError(f"task {chosen}: batch is at most {LARGEST_BATCH}")
    if batch and isolate:
        raise ConfigurationError(f"task {chosen}: a batch cannot be isolated; choose one")
    return TaskDefinition(
        name=chosen,
        function=function,
        arguments=Arguments(chosen, function, context=context, each=batch > 0),
        queue=check_queue_name(queue),
        priority=priority,
        retry=Backoff(retry) if isinstance(retry, int) else retry or Backoff(),
        timeout=None if timeout is None else seconds(timeout),
        isolate=isolate,
        batch=batch,
        history=history,
        settle_at_once=settle_at_once,
        is_async=inspect.iscoroutinefunction(function),
    )


class Registry:
    """The tasks of one application, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskDefinition] = {}

    def add(self, task: TaskDefinition) -> None:
        if task.name in self._tasks:
            raise ConfigurationError(f"there are two tasks named {task.name}: give one of them another name=")
        self._tasks[task.name] = task

    def find(self, name: str) -> TaskDefinition:
        try:
            return self._tasks[name]
        except KeyError:
            known = ", ".join(sorted(self._tasks)) or "none"
            raise UnknownTask(f"no task named {name}; this application has: {known}") from None

    def get(self, name: str) -> TaskDefinition | None:
        return self._tasks.get(name)

    def __iter__(self) -> Iterator[TaskDefinition]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def names(self) -> list[str]:
        return sorted(self._tasks)

    @property
    def queues(self) -> list[str]:
        return sorted({task.queue for task in self._tasks.values()})
