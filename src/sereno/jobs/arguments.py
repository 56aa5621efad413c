"""Arguments of a task: checked against its annotations at enqueue time and again before the task runs.

Arguments are stored as one JSON object, keyed by parameter name, never as pickles. Annotations may be dataclasses,
attrs classes, TypedDicts, msgspec structs and pydantic models.
"""

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from sereno.database.json_values import TOO_DEEP, stored
from sereno.error_text import storable
from sereno.errors import ConfigurationError, InvalidArguments


def decode_model(wanted: type, value: Any) -> Any:
    """Decoding hook for msgspec: build a model that has its own `model_validate` (pydantic)."""
    validate = getattr(wanted, "model_validate", None)
    if callable(validate):
        return validate(value)
    raise NotImplementedError(f"{wanted.__name__} has no JSON form")


class Arguments:
    """Encodes and decodes the arguments of one task: `encode` when it is enqueued, `decode` when it runs."""

    # Arguments that are stored encrypted; none, unless it is an EncryptedArguments.
    encrypted: tuple[str, ...] = ()
    # The arguments as one type; None where only the database knows their types.
    shape: Any = None

    def __init__(
        self,
        task: str,
        function: Callable[..., Any],
        *,
        context: type,
        each: bool = False,
        injected: Collection[str] = (),
    ) -> None:
        """`injected`: parameters that receive resources, and are no arguments of the job."""
        self._task = task
        hints = annotations_of(function)
        parameters = list(inspect.signature(function).parameters.values())
        self.context_name = next((p.name for p in parameters if hints.get(p.name) is context), None)
        wanted = [p for p in parameters if p.name != self.context_name and p.name not in injected]
        for parameter in wanted:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise ConfigurationError(
                    f"task {task}: parameter {parameter} cannot be stored by name; use plain named parameters"
                )
        self._plain = [p.replace(annotation=inspect.Parameter.empty) for p in wanted]
        self._call_names = tuple(p.name for p in wanted)
        if each:
            wanted, hints = _one_of_a_batch(task, wanted, hints)
        self._signature = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in wanted])
        self.names = tuple(self._signature.parameters)
        self._all_positional = all(p.kind is not p.KEYWORD_ONLY for p in wanted)
        # Encodes a purely positional call without binding its signature.
        self._bound = msgspec.defstruct(f"{task}_bound", [(name, Any) for name in self.names], gc=False)
        fields = [_field(p, hints.get(p.name, Any)) for p in wanted]
        try:
            self.shape = msgspec.defstruct(f"{task}_arguments", fields, kw_only=True, forbid_unknown_fields=True)
            self._decoder = msgspec.json.Decoder(self.shape, dec_hook=decode_model)
        except TypeError as error:
            raise ConfigurationError(f"task {task}: the types of its parameters cannot be stored: {error}") from None
        # Positional calls are cheapest; a keyword-only parameter rules them out.
        self._positional = self._all_positional
        self._context_index = 0
        if self.context_name is not None:
            names = [p.name for p in parameters]
            self._context_index = names.index(self.context_name)
            self._positional = (
                self._positional and parameters[self._context_index].kind is not inspect.Parameter.KEYWORD_ONLY
            )

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: int) -> bytes:
        """Return the bound arguments as JSON. Raises InvalidArguments with the reason, before anything is written."""
        bound = self._bind(args, kwargs)
        raw = stored(bound, self._unstorable)
        if len(raw) > limit:
            raise self._refusal(
                f"{len(raw):,} bytes of arguments, the limit is {limit:,}: store the data elsewhere and pass its id"
            )
        self._check_types(raw)
        return raw

    def keyed(self, raw: bytes) -> dict[str, Any]:
        """Return the decoded arguments, with defaults for those left out. Limit keys are built from this."""
        return self.defaults | msgspec.json.decode(raw, type=dict[str, Any])

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the default values that can be part of a key: text, integers and None."""
        parameters = self._signature.parameters.values()
        return {p.name: p.default for p in parameters if isinstance(p.default, str | int | None)}

    def encode_json(self, raw: bytes, limit: int) -> bytes:
        """Like `encode`, for arguments that are JSON already (command line, HTTP)."""
        try:
            values = msgspec.json.decode(raw, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._refusal(f"the arguments must be one JSON object: {error}") from None
        except RecursionError:
            raise self._refusal(TOO_DEEP) from None
        return self.encode((), values, limit)

    def decode(self, raw: msgspec.Raw | bytes) -> tuple[Any, ...]:
        """Return the values in the order of the parameters."""
        try:
            return msgspec.structs.astuple(self._decoder.decode(raw))
        except Exception as error:  # noqa: BLE001 - a model's own validator may raise anything
            raise self._refusal(self._why(error)) from None

    def call(self, function: Callable[..., Any], values: tuple[Any, ...], context: Any) -> Any:
        if self._positional:
            if self.context_name is None:
                return function(*values)
            index = self._context_index
            return function(*values[:index], context, *values[index:])
        return self.call_with(function, values, context, {})

    def call_with(
        self, function: Callable[..., Any], values: tuple[Any, ...], context: Any, resources: Mapping[str, Any]
    ) -> Any:
        """Like `call`, with resources by parameter name."""
        named = {**dict(zip(self._call_names, values, strict=True)), **resources}
        if self.context_name is not None:
            named[self.context_name] = context
        return function(**named)

    def call_here(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], resources: Collection[str]
    ) -> Any:
        """Call the function with the caller's arguments; resources are given by keyword."""
        given = {name: value for name, value in kwargs.items() if name in resources}
        if missing := sorted(set(resources) - given.keys()):
            raise ConfigurationError(f"task {self._task}: give its resource by keyword: {missing[0]}=…")
        own = {name: value for name, value in kwargs.items() if name not in resources}
        return function(**inspect.Signature(self._plain).bind(*args, **own).arguments, **given)

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any] | msgspec.Struct:
        if not kwargs and self._all_positional and len(args) == len(self.names):
            # The common call; inspect's general binding takes twenty times as long.
            return self._bound(*args)
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise self._refusal(f"{error}; it takes ({', '.join(self.names)})") from None

    def _check_types(self, raw: bytes) -> None:
        try:
            self._decoder.decode(raw)
        except Exception as error:  # noqa: BLE001 - a model's own validator may raise anything
            raise self._refusal(self._why(error)) from None

    def _why(self, error: Exception) -> str:
        """Return why the arguments do not have the types of the parameters."""
        return storable(error)

    def _unstorable(self, why: str) -> InvalidArguments:
        return self._refusal(why)

    def _refusal(self, why: str) -> InvalidArguments:
        return InvalidArguments(f"task {self._task}: {why}")


def annotations_of(function: Callable[..., Any], kind: str = "task") -> dict[str, Any]:
    """Return the annotations of a function, resolved. `kind`: what errors call the function."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"{kind} {function.__qualname__}: its annotations cannot be resolved: {error}"
        ) from None


def _one_of_a_batch(
    task: str, wanted: list[inspect.Parameter], hints: dict[str, Any]
) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """Return the parameter of one job of a batch task: an element of the list that the function takes."""
    if len(wanted) != 1 or typing.get_origin(hints.get(wanted[0].name)) is not list:
        raise ConfigurationError(
            f"batch task {task}: it takes one parameter annotated as a list, such as items: list[Item]"
        )
    (element,) = typing.get_args(hints[wanted[0].name])
    return [wanted[0].replace(name="item")], {"item": element}


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.default is inspect.Parameter.empty:
        return (parameter.name, hint)
    if isinstance(parameter.default, list | dict | set):
        return (parameter.name, hint, msgspec.field(default_factory=parameter.default.copy))
    return (parameter.name, hint, parameter.default)
