"""The types of `@app.task(…)`, `@app.schedule(…)` and `@app.cycle(…)`, for type checkers only."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from sereno.jobs.task_handle import AsyncTask, Task
from sereno.worker.context import Context

P = ParamSpec("P")
R = TypeVar("R")
Item = TypeVar("Item")


class ScheduleDecorator:
    """The type of `@app.schedule(...)` and `@app.cycle(...)`; never instantiated."""

    @overload
    def __call__(self, function: AsyncTask[P, R], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Task[P, R], /) -> Task[P, R]: ...  # type: ignore[overload-overlap]  # AsyncTask first
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        raise AssertionError(function)


class TaskDecorator:
    """The type of `@app.task(...)`; never instantiated."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        raise AssertionError(function)


class BatchDecorator:
    """The type of `@app.task(batch=…)`; never instantiated. The function takes a list, a job carries one item."""

    @overload
    def __call__(self, function: Callable[[Context, list[Item]], R], /) -> Task[[Item], R]: ...
    @overload
    def __call__(self, function: Callable[[list[Item]], R], /) -> Task[[Item], R]: ...
    def __call__(self, function: Any, /) -> Any:
        raise AssertionError(function)
