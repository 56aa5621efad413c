"""What an application adds to its workers: generators around attempts, shared resources, functions called on events."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar, overload

from sereno.jobs.resource import Resource
from sereno.jobs.task import Registry
from sereno.worker.hooks import EventName, Hook, check_hook
from sereno.worker.middleware import Middleware, check_middleware

T = TypeVar("T")
HookFunction = TypeVar("HookFunction", bound=Hook)
MiddlewareFunction = TypeVar("MiddlewareFunction", bound=Middleware)


class ExtensionPoints:
    """The part of `Sereno` that declares them."""

    registry: Registry

    def around(self, middleware: MiddlewareFunction) -> MiddlewareFunction:
        """Run a generator around every attempt of the application's tasks, also of isolated and batch ones.

        It gets the context and yields once, where the handler runs; what the handler raises is raised there:

            @app.around
            def timed(ctx: Context):
                began = time.monotonic()
                try:
                    yield
                finally:
                    ctx.log.info("%.3f s", time.monotonic() - began)
        """
        check_middleware(middleware)
        self.registry.middlewares.append(middleware)
        return middleware

    @overload
    def resource(self, function: Callable[..., AsyncIterator[T]], /) -> Resource[T]: ...
    @overload
    def resource(self, function: Callable[..., Iterator[T]], /) -> Resource[T]: ...
    def resource(self, function: Callable[..., Any], /) -> Resource[Any]:
        """Declare what handlers share in a process, such as an HTTP client; a parameter of its type receives it.

        The generator yields once. It is opened when a handler first needs it, and closed when the worker stops:

            @app.resource
            async def http() -> AsyncIterator[ClientSession]:
                async with ClientSession() as session:
                    yield session

            @app.task
            async def export(id: int, http: ClientSession = inject(http)) -> None: ...

        At run time the annotation is enough; with `inject`, type checkers accept `export.enqueue(7)` too. A resource
        may take other resources. Of several with one type, `Annotated[ClientSession, "http"]` names one.
        """
        return self.registry.resources.declare(function)

    def on(self, *events: EventName) -> Callable[[HookFunction], HookFunction]:
        """Call a function after the outcome of an attempt is stored: `@app.on("job.dead")`, async or sync.

        Events: "job.succeeded", "job.failed" (it is retried), "job.dead" and "job.cancelled". At most once, in the
        worker process; a killed process calls none. What must happen belongs into a job or a notification.
        """

        def decorate(function: HookFunction) -> HookFunction:
            check_hook(function, events)
            for name in events:
                self.registry.hooks.setdefault(name, []).append(function)
            return function

        return decorate
