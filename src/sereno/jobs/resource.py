"""`@app.resource`: what handlers share in a process, such as an HTTP client. Declarations only; nothing opens here."""

import inspect
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar, cast

from sereno.errors import ConfigurationError
from sereno.jobs.arguments import annotations_of

T = TypeVar("T")

_YIELDS = (Iterator, AsyncIterator, Generator, AsyncGenerator)
# Modules whose types are arguments of jobs: a resource of such a type would capture every parameter of that type.
_ARGUMENT_MODULES = ("builtins", "datetime", "decimal", "types", "typing", "uuid")


@dataclass(frozen=True, slots=True, eq=False)
class Resource(Generic[T]):
    """Created by `@app.resource`. `needs`: the resources that its function takes, by parameter name."""

    name: str
    function: Callable[..., Any]
    kind: Any
    needs: "Mapping[str, Resource[Any]]" = field(default_factory=dict)

    @property
    def is_async(self) -> bool:
        """Whether it is opened and closed in the event loop."""
        return inspect.isasyncgenfunction(self.function)

    def __repr__(self) -> str:
        return f"<Resource {self.name}>"


class Injected:
    """The default value of a parameter that receives a resource; created by `inject`."""

    def __init__(self, resource: Resource[Any] | None) -> None:
        self.resource = resource


@typing.overload
def inject(resource: Resource[T], /) -> T: ...
@typing.overload
def inject() -> Any: ...
def inject(resource: Resource[Any] | None = None, /) -> Any:
    """Return a default for a parameter that receives a resource, so that type checkers let calls omit it.

    `async def export(id: int, http: ClientSession = inject(http))`. Without a resource, the annotation decides.
    """
    return Injected(resource)


class Resources:
    """The resources of one application, by name. `overrides`: values that the test kit gives instead, by name."""

    def __init__(self) -> None:
        self._declared: dict[str, Resource[Any]] = {}
        self.overrides: dict[str, Any] = {}
        # (owner, annotation without a name) of the parameters that were checked: none may become a resource later.
        self._seen: list[tuple[str, Any]] = []

    def __len__(self) -> int:
        return len(self._declared)

    def declare(self, function: Callable[..., Any]) -> Resource[Any]:
        """Check a generator function, and return its resource."""
        name = str(getattr(function, "__name__", repr(function)))
        kind = _kind(name, function)
        if name in self._declared:
            raise ConfigurationError(f"there are two resources named {name}: rename one of the functions")
        for owner, hint in self._seen:
            if hint == kind:
                raise ConfigurationError(
                    f"{owner} takes a {_text(kind)}, and resource {name}, which yields one, is declared after it: "
                    f"declare resources first; of several with one type, name the one to use: "
                    f'Annotated[{_text(kind)}, "{name}"]'
                )
        hints = annotations_of(function, "resource")
        needs = self._needs(f"resource {name}", function, hints)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in needs:
                continue
            hint = hints.get(parameter.name)
            why = (
                "takes itself: that is a cycle"
                if hint == kind
                else "can only take resources that are declared above it"
            )
            raise ConfigurationError(f"resource {name}: parameter {parameter}: a resource {why}")
        self._remember(f"resource {name}", function, hints)
        found = self._declared[name] = Resource(name, function, kind, needs)
        return found

    def needs(self, owner: str, function: Callable[..., Any], hints: Mapping[str, Any]) -> dict[str, Resource[Any]]:
        """Return the resources that a function takes, by parameter name. `owner`: what errors call the function."""
        found = self._needs(owner, function, hints)
        self._remember(owner, function, hints)
        return found

    def _needs(self, owner: str, function: Callable[..., Any], hints: Mapping[str, Any]) -> dict[str, Resource[Any]]:
        found: dict[str, Resource[Any]] = {}
        for parameter in inspect.signature(function).parameters.values():
            resource = self._of(f"{owner}: parameter {parameter.name}", hints.get(parameter.name), parameter.default)
            if resource is None:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ConfigurationError(f"{owner}: parameter {parameter.name} is injected by name: remove the `/`")
            found[parameter.name] = resource
        return found

    def _remember(self, owner: str, function: Callable[..., Any], hints: Mapping[str, Any]) -> None:
        """Note the types of parameters that name no resource: a later resource of such a type would be ambiguous."""
        for parameter in inspect.signature(function).parameters.values():
            hint = hints.get(parameter.name)
            if hint is not None and not _is_named(hint, parameter.default):
                self._seen.append((owner, _plain(hint)))

    def _of(self, owner: str, hint: Any, default: Any) -> Resource[Any] | None:
        if isinstance(default, Injected) and default.resource is not None:
            return default.resource
        kind = _plain(hint)
        same = [each for each in self._declared.values() if each.kind == kind]
        if not same:
            if isinstance(default, Injected):
                raise ConfigurationError(f"{owner}: no resource yields {_text(kind)}: declare one with @app.resource")
            return None
        names = [str(word) for word in getattr(hint, "__metadata__", ()) if isinstance(word, str)]
        named = [each for each in same if each.name in names]
        if names and not named:
            raise ConfigurationError(
                f"{owner}: no resource named {names[0]} yields {_text(kind)}; there are: {_names(same)}"
            )
        if len(named or same) > 1:
            raise ConfigurationError(
                f"{owner}: several resources yield {_text(kind)}: {_names(same)}; "
                f'name one: Annotated[{_text(kind)}, "{same[0].name}"]'
            )
        return (named or same)[0]


def _kind(name: str, function: Callable[..., Any]) -> Any:
    """Return the type that the function yields."""
    if not inspect.isgeneratorfunction(function) and not inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"@app.resource: {name} is not a generator function: `yield` the resource once, and close it after that"
        )
    returned = annotations_of(function, "resource").get("return")
    if typing.get_origin(returned) not in _YIELDS:
        wanted = "AsyncIterator" if inspect.isasyncgenfunction(function) else "Iterator"
        raise ConfigurationError(
            f"resource {name}: annotate what it yields, for example -> {wanted}[Client]: parameters are found by it"
        )
    kind = _plain(typing.get_args(returned)[0])
    origin = typing.get_origin(kind) or kind
    if kind is None or getattr(origin, "__module__", "builtins") in _ARGUMENT_MODULES:
        raise ConfigurationError(
            f"resource {name} yields {_text(kind)}, which arguments of jobs use too: yield an object of a class"
        )
    return kind


def _plain(hint: Any) -> Any:
    return hint.__origin__ if typing.get_origin(hint) is Annotated else hint


def _is_named(hint: Any, default: Any) -> bool:
    """Return whether the parameter names its resource, so that a second one of the type changes nothing."""
    by_default = isinstance(default, Injected) and default.resource is not None
    return by_default or any(isinstance(word, str) for word in getattr(hint, "__metadata__", ()))


def _text(kind: Any) -> str:
    return cast(str, getattr(kind, "__name__", None) or str(kind))


def _names(resources: list[Resource[Any]]) -> str:
    return ", ".join(sorted(each.name for each in resources))
