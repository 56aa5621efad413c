"""The object that `@app.task` returns: a callable function that can also be enqueued as a job."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack

import msgspec

from sereno.database.database import Database
from sereno.duration import Duration
from sereno.errors import ConfigurationError
from sereno.jobs.carried import check_carried
from sereno.jobs.enqueue import aenqueue, enqueue_one
from sereno.jobs.handle import Job, ids_of
from sereno.jobs.job import JobOptions, NewJob, OnConflict, OnDead, UniqueFor
from sereno.jobs.keys import keys_of
from sereno.jobs.limits.limit import NO_RULE, KeyRule
from sereno.jobs.requirements import requirements_of
from sereno.jobs.task import LimitOptions, Registry, TaskDefinition, check_options, check_words, rule_of

P = ParamSpec("P")
R = TypeVar("R")

# Marks an omitted connection. None is an error: most likely a connection that the caller forgot to open.
_UNCHANGED: Any = object()


_LIMITS = LimitOptions.__annotations__.keys()


class EnqueueOptions(LimitOptions, total=False):
    """The options of one job, for `Task.using`; None leaves an option as it was."""

    queue: str | None
    priority: int | None
    run_at: datetime | None
    delay: Duration | None
    tenant: str | None
    unique_key: str | None
    unique_for: UniqueFor | None
    on_conflict: OnConflict | None
    expires_at: datetime | None
    tags: Sequence[str] | None
    trace: str | None
    after: Sequence[Job[Any] | int] | None
    on_dead: OnDead | None
    direct: bool | None


class Task(Generic[P, R]):
    """Created by `@app.task`. Call it to run the function here; `enqueue` or `aenqueue` it to run it on a worker.

    P: the parameters of the function. R: what it returns, which is the result of its jobs.
    """

    __slots__ = ("_connection", "_database", "_options", "_registry", "_rule", "definition")

    def __init__(
        self,
        definition: TaskDefinition,
        database: Database,
        registry: Registry,
        options: JobOptions | None = None,
        connection: Any = None,
        extra: KeyRule | None = None,
    ) -> None:
        self.definition = definition
        self._database = database
        self._registry = registry
        self._options = options or JobOptions(queue=definition.queue, priority=definition.priority)
        self._connection = connection
        self._rule = extra

    @property
    def name(self) -> str:
        """The name that jobs carry."""
        return self.definition.name

    @property
    def middlewares(self) -> Sequence[Callable[[Any], Any]]:
        """Generator functions around its attempts (`@app.around`)."""
        return self._registry.middlewares_of(self.definition)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self.definition.arguments.context_name is not None:
            raise ConfigurationError(
                f"task {self.name} needs a context, which only a worker has: enqueue it, "
                f"or call {self.name}.definition.function with a context of your own"
            )
        if self.definition.resources:
            definition = self.definition
            return definition.arguments.call_here(definition.function, args, kwargs, definition.resources)  # type: ignore[no-any-return]
        return self.definition.function(*args, **kwargs)  # type: ignore[no-any-return]  # the registry forgets R

    def using(self, connection: Any = _UNCHANGED, /, **options: Unpack[EnqueueOptions]) -> Self:
        """Return the same task with options: the caller's transaction, a delay, a unique key, a tenant.

        after: jobs that have to succeed before; the job waits for them. on_dead: what a dead one of them means: "wait"
        until it is retried, "continue" as if it had succeeded, or "cancel" this job too.

        Limits given here apply in addition to those of the task and the queue; each needs a name.
        """
        if connection is None:
            raise ConfigurationError(
                "using(None): there is no connection to enqueue on; omit the argument to use the app's own connection"
            )
        check_options("using", options, EnqueueOptions)
        changed = {name: value for name, value in options.items() if value is not None and name not in _LIMITS}
        after = options.get("after")
        if after is not None:
            changed["after"] = ids_of(after)
        checked = msgspec.structs.replace(self._options, **changed).checked()
        chosen = self._connection if connection is _UNCHANGED else connection
        extra = self._rule
        if any(options.get(name) for name in _LIMITS):
            extra = self._extra(rule_of("", options))
        return type(self)(self.definition, self._database, self._registry, checked, chosen, extra)

    def _extra(self, rule: KeyRule) -> KeyRule:
        if any(str(limit.name).startswith(".") for limit in rule.limits):
            raise ConfigurationError(
                f"task {self.name}: a limit given with a job needs a name, so that operators can find and change it"
            )
        arguments = self.definition.arguments
        check_words(f"task {self.name}", rule, arguments.names, arguments.encrypted)
        # These limits are added to those of an earlier `using`; of two with the same name the later one wins.
        before = self._rule or NO_RULE
        limits = {limit.name: limit for limit in (*before.limits, *rule.limits)}
        return KeyRule(
            tuple(limits.values()),
            rule.fair or before.fair,
            rule.order or before.order,
            rule.dead_blocks or before.dead_blocks,
            extra=True,
        )

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return the validated job that `enqueue` would write; for `enqueue_many` and schedules."""
        raw = self.definition.arguments.encode(args, kwargs, self._database.settings.arguments_limit)
        options = self._options
        rules = self._registry.rules(self.definition, options.queue or self.definition.queue)
        requires = requirements_of(self.definition) if self.definition.is_demanding else None
        if self._rule is None and not rules:
            job = NewJob(self.name, raw, options, result_type=self.definition.result, requires=requires)
        else:
            keys = keys_of(self.definition, (*rules, self._rule), options, raw)
            job = NewJob(self.name, raw, options, keys, self._rule is not None, self.definition.result, requires)
        if self._registry.carriable and options.queue in self._registry.carriable:
            check_carried(job)
        return job

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueue a job. Durable when this returns, or when the transaction of `using(connection)` commits."""
        wanted = self.job(*args, **kwargs)
        if (publisher := self._registry.direct(wanted, self._connection)) is not None:
            job = publisher.publish([wanted])[0]
        else:
            job = enqueue_one(self._database, wanted, self._connection)
        return Job(self._database, job, self.definition.result)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue` for async code."""
        wanted = self.job(*args, **kwargs)
        if (publisher := self._registry.direct(wanted, self._connection)) is not None:
            (job,) = await publisher.apublish([wanted])
        else:
            (job,) = await aenqueue(self._database, [wanted], self._connection)
        return Job(self._database, job, self.definition.result)


class AsyncTask(Task[P, R]):
    """A task of an async function: the same, except that a call of it has to be awaited."""

    __slots__ = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
        return super().__call__(*args, **kwargs)  # type: ignore[return-value]  # the function is async
