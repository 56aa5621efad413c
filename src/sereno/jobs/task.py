"""Task and queue definitions, and the registry that holds those of one application."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, UnknownTask
from sereno.jobs.arguments import Arguments, annotations_of
from sereno.jobs.carried import CarriedQueue, DirectPublisher, check_limits, is_direct
from sereno.jobs.encrypted_arguments import EncryptedArguments
from sereno.jobs.encryption import KeyRing, key_ring
from sereno.jobs.job import DEFAULT_PRIORITY, PRIORITIES, NewJob, check_queue_name
from sereno.jobs.limits.limit import NO_RULE, AnyLimit, KeyRule, Limits, Rate, rule
from sereno.jobs.resource import Resource, Resources
from sereno.jobs.result import EncryptedResultType, ResultType, result_type
from sereno.jobs.retry import Backoff

DEFAULT_TIMEOUT = "10m"
# Jobs in one call of a batch task.
LARGEST_BATCH = 1000
# Versions of a task.
VERSIONS = range(1, 1_000_000_001)
# Name prefix of sereno's internal tasks.
OWN_TASKS = "sereno."


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task: its function and how workers run it."""

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
    rule: KeyRule = NO_RULE
    tenants: bool = True
    # The type of the result that it keeps; None if it keeps none.
    result: ResultType | None = None
    # The resources that its function takes, by parameter name.
    resources: Mapping[str, Resource[Any]] = field(default_factory=dict)
    # Whether a job is one call in the event loop with nothing to prepare: most tasks are like that.
    is_usual: bool = False
    version: int = 1
    # Whether its jobs require something of their worker: a version above 1, or a key.
    is_demanding: bool = False
    # Whether its function relies on the row of its job in sereno.jobs, so that a carried job is stored before it runs.
    needs_row: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_open_to_tenants(self) -> bool:
        """Return whether a tenant's token may enqueue it over HTTP. Internal tasks are never open."""
        return self.tenants and not self.name.startswith(OWN_TASKS)


class LimitOptions(TypedDict, total=False):
    """The limits of a task or of one job; `Sereno.task` explains each."""

    concurrency: Limits
    rate: Limits
    fair_key: str | None
    order_key: str | None
    dead_blocks: bool


class TaskOptions(LimitOptions, total=False):
    """The options of a task, declared once for `Sereno.task` and `define`; `Sereno.task` explains each."""

    name: str | None
    queue: str
    priority: int
    retry: Backoff | int | None
    timeout: Duration | None
    history: bool
    settle_at_once: bool
    tenants: bool
    result: bool
    version: int
    encrypt: bool | Sequence[str]


def define(
    function: Callable[..., Any],
    *,
    context: type,
    batch: int = 0,
    isolate: bool = False,
    resources: Resources | None = None,
    keys: Callable[[], KeyRing] = lambda: key_ring(None),
    **options: Unpack[TaskOptions],
) -> TaskDefinition:
    """Validate a task declaration and return its definition. `keys`: of the process, for encrypted arguments."""
    check_options("task", options, TaskOptions)
    name, priority, timeout = (
        options.get("name"),
        options.get("priority", DEFAULT_PRIORITY),
        options.get("timeout", DEFAULT_TIMEOUT),
    )
    chosen = name or str(getattr(function, "__name__", ""))
    if not chosen.replace(".", "").replace("_", "").replace("-", "").isalnum():
        raise ConfigurationError(f"{chosen!r} is not a valid task name (letters, digits, '_', '-' and '.'): give name=")
    version, encrypt = options.get("version", 1), options.get("encrypt", False)
    _check_numbers(chosen, priority, batch, version)
    if batch and isolate:
        raise ConfigurationError(f"task {chosen}: a batch task cannot be isolated: remove batch or isolate")
    needs = resources.needs(f"task {chosen}", function, annotations_of(function)) if resources is not None else {}
    arguments = Arguments(chosen, function, context=context, each=batch > 0, injected=needs)
    if encrypt:
        arguments = EncryptedArguments(
            chosen, function, context=context, each=batch > 0, injected=needs, encrypt=encrypt, keys=keys
        )
    is_async = inspect.iscoroutinefunction(function)
    history = options.get("history", True)
    if options.get("result") and not history:
        raise ConfigurationError(f"task {chosen}: a result is stored with the history: remove history=False")
    wanted, sealed = options.get("result") if history else False, keys if encrypt is True else None
    result = result_type(chosen, function, batch=batch > 0, wanted=wanted, keys=sealed)
    rule = rule_of(chosen, options)
    check_words(f"task {chosen}", rule, arguments.names, arguments.encrypted)
    return TaskDefinition(
        name=chosen,
        function=function,
        arguments=arguments,
        queue=check_queue_name(options.get("queue", "default")),
        priority=priority,
        retry=Backoff(retry) if isinstance(retry := options.get("retry"), int) else retry or Backoff(),
        timeout=None if timeout is None else seconds(timeout),
        isolate=isolate,
        batch=batch,
        history=history,
        settle_at_once=options.get("settle_at_once", False),
        is_async=is_async,
        rule=rule,
        tenants=options.get("tenants", True),
        result=result,
        resources=needs,
        is_usual=is_async and not batch and not isolate and not needs,
        version=version,
        is_demanding=version > 1 or bool(arguments.encrypted) or isinstance(result, EncryptedResultType),
        needs_row=chosen.startswith(OWN_TASKS),
    )


def _check_numbers(task: str, priority: int, batch: int, version: int) -> None:
    if priority not in PRIORITIES:
        raise ConfigurationError(f"task {task}: priority {priority} is out of range: 0 (first) to 9 (last)")
    if not 0 <= batch <= LARGEST_BATCH:
        raise ConfigurationError(f"task {task}: batch {batch} is out of range: 0 to {LARGEST_BATCH}")
    if type(version) is not int or version not in VERSIONS:
        raise ConfigurationError(f"task {task}: version {version!r:.40} is out of range: 1 to {VERSIONS[-1]:,}")


def check_words(owner: str, keys: KeyRule, names: Collection[str], encrypted: Collection[str] = ()) -> None:
    """Raise ConfigurationError when a key template uses a placeholder that a job does not have, or an encrypted one."""
    if hidden := keys.words & set(encrypted):
        raise ConfigurationError(
            f"{owner}: a key uses {{{min(hidden)}}}, which is encrypted; the key would store it in plain text"
        )
    unknown = keys.words - set(names)
    if unknown:
        raise ConfigurationError(
            f"{owner}: a key uses {{{min(unknown)}}}, which is not an argument; "
            f"available are {{tenant}}, {{task}}, {{queue}}" + "".join(f", {{{name}}}" for name in names)
        )


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """A queue: limits for all its jobs together (`own`), and rules for the keys of each job."""

    name: str
    own: tuple[AnyLimit, ...] = ()
    rule: KeyRule = NO_RULE


def check_options(name: str, options: Mapping[str, Any], declared: type) -> None:
    """Raise TypeError for an option that is not declared, as Python does for an unknown keyword argument."""
    if unknown := options.keys() - declared.__annotations__.keys():
        raise TypeError(f"{name}() got an unexpected keyword argument {min(unknown)!r}")


def rule_of(owner: str, options: LimitOptions) -> KeyRule:
    """Return the limits that the options declare."""
    return rule(
        owner,
        options.get("concurrency"),
        options.get("rate"),
        options.get("fair_key"),
        options.get("order_key"),
        dead_blocks=options.get("dead_blocks", False),
    )


def define_queue(
    name: str, *, concurrency: Limits = None, rate: Limits = None, fair_key: str | None = None
) -> QueueDefinition:
    """Validate a queue declaration. A limit without a key applies to the queue as a whole."""
    owner = f"queue.{check_queue_name(name)}"
    found = rule(owner, concurrency, rate, fair_key)
    check_words(f"queue {name}", found, ())
    keyed = tuple(limit for limit in found.limits if limit.key)
    own = tuple(limit for limit in found.limits if not limit.key)
    if any(isinstance(limit, Rate) and limit.units != 1 for limit in own):
        raise ConfigurationError(f"queue {name}: a rate without a key counts jobs; units need a key")
    return QueueDefinition(name, own, KeyRule(keyed, fair_key))


class Registry:
    """The tasks of one application, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskDefinition] = {}
        self._queues: dict[str, QueueDefinition] = {}
        self.limits: dict[str, AnyLimit] = {}
        # Generator functions around every attempt.
        self.middlewares: list[Callable[[Any], Any]] = []
        # Functions that are called after settlements (`@app.on`), by the name of the event.
        self.hooks: dict[str, list[Callable[[Any], Any]]] = {}
        # What handlers share in a process (`@app.resource`).
        self.resources = Resources()
        # Queues with a carrier, by name, and what publishes their jobs directly.
        self.carried: dict[str, CarriedQueue] = {}
        # The same, and queues that have the rules of a carried queue while their jobs stay in PostgreSQL.
        self.carriable: dict[str, CarriedQueue] = {}
        self.publisher: DirectPublisher | None = None

    def middlewares_of(self, task: TaskDefinition) -> Sequence[Callable[[Any], Any]]:
        """Return what runs around the attempts of a task: nothing around sereno's internal ones."""
        return () if task.name.startswith(OWN_TASKS) else self.middlewares

    def add(self, task: TaskDefinition) -> None:
        if task.name in self._tasks:
            raise ConfigurationError(f"there are two tasks named {task.name}: give one of them another name=")
        if task.rule and task.queue in self.carriable:
            check_limits(f"task {task.name}", task.queue)
        self._add_limits(task.rule.limits)
        self._tasks[task.name] = task

    def add_queue(self, queue: QueueDefinition) -> None:
        if queue.name in self._queues:
            raise ConfigurationError(f"queue {queue.name} is declared twice: declare it in one place")
        if (queue.own or queue.rule) and queue.name in self.carriable:
            check_limits(f"queue {queue.name}", queue.name)
        self._check_own_limits(queue)
        self._add_limits((*queue.own, *queue.rule.limits))
        self._queues[queue.name] = queue

    def _check_own_limits(self, queue: QueueDefinition) -> None:
        """Refuse a limit of a whole queue that another queue has: it is stored with the name of one queue."""
        names = {limit.name for limit in queue.own}
        for other in self._queues.values():
            for name in sorted(names & {limit.name for limit in other.own}, key=str):
                raise ConfigurationError(
                    f"the queues {other.name} and {queue.name} cannot share the limit {name}: declare it with the "
                    f"tasks of both (concurrency= or rate= of @app.task), or give it two names"
                )

    def _add_limits(self, limits: Collection[AnyLimit]) -> None:
        for limit in limits:
            known = self.limits.setdefault(str(limit.name), limit)
            if known.numbers != limit.numbers:
                raise ConfigurationError(
                    f"the limit {limit.name} is declared with different numbers: {known!r} and {limit!r}"
                )

    def carry(self, queue: CarriedQueue) -> None:
        """Carry a queue; without a carrier, its jobs stay in PostgreSQL under the same rules.

        Raises ConfigurationError if the queue or one of its tasks has limits.
        """
        self.carriable[queue.name] = queue
        if queue.carrier is not None:
            self.carried[queue.name] = queue
        declared = self._queues.get(queue.name)
        if declared is not None and (declared.own or declared.rule):
            check_limits(f"queue {queue.name}", queue.name)
        for task in self._tasks.values():
            if task.rule and task.queue == queue.name:
                check_limits(f"task {task.name}", queue.name)

    def direct(self, job: NewJob, connection: Any) -> DirectPublisher | None:
        """Return what publishes the job directly; None if it is stored in PostgreSQL first, as most jobs are."""
        if not self.carried and not job.options.direct:
            return None
        name = job.options.queue or ""
        is_published = is_direct(job, self.carriable.get(name), connection)
        return self.publisher if is_published and name in self.carried else None

    def keep_in_postgres(self) -> None:
        """Leave the jobs of all carried queues in PostgreSQL; nothing connects to a carrier."""
        self.carried.clear()

    def queue(self, name: str) -> QueueDefinition | None:
        return self._queues.get(name)

    @property
    def declared_queues(self) -> list[QueueDefinition]:
        return [self._queues[name] for name in sorted(self._queues)]

    def rules(self, task: TaskDefinition, queue: str) -> tuple[KeyRule, ...]:
        """Return the key rules for jobs of this task in this queue; usually none."""
        declared = self._queues.get(queue)
        if declared is None:
            return (task.rule,) if task.rule else ()
        return tuple(each for each in (declared.rule, task.rule) if each)

    def find(self, name: str) -> TaskDefinition:
        try:
            return self._tasks[name]
        except KeyError:
            known = ", ".join(sorted(self._tasks)) or "none"
            raise UnknownTask(f"no task named {name}; this application has: {known}") from None

    def result_type(self, name: str) -> ResultType | None:
        """Return the type of a task's result; None if it keeps none, or is a task of another application."""
        task = self._tasks.get(name)
        return None if task is None else task.result

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
        return sorted({task.queue for task in self._tasks.values()} | self._queues.keys())
