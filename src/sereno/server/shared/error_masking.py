"""Error texts for viewers: values that may be secrets or personal addresses are masked.

Operators see errors unmasked. A search does not find masked values either: see `search_access`.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import msgspec

from sereno.access.identity import Principal
from sereno.access.masking import masked
from sereno.database.statement import Operation

T = TypeVar("T")

# Fields of rows and responses that hold the error text of code, of a provider or of a database.
ERROR_FIELDS = frozenset({"error", "error_message", "last_error", "traceback", "reason", "words", "sentences"})
# A group of errors also has the message of its newest one. A log line has no type; its message was masked before.
TYPED = "error_type"
TYPED_ERROR_FIELDS = ERROR_FIELDS | {"message"}
ACTION, DETAIL = "action", "detail"


def sees_all(who: Principal) -> bool:
    """Return whether errors are shown to them unmasked."""
    return who.may("operator")


def hidden_in(operation: Operation[T]) -> Operation[T]:
    """Run an operation and mask the errors in its result."""
    found = yield from operation
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        # Sentences, such as those of `why`.
        return masked(found)  # type: ignore[no-any-return]  # a list of texts again
    return hidden(found)


def hidden(value: T) -> T:
    """Return the same rows, records or JSON with errors masked, as a copy where something had to be masked."""
    found: Any = _hidden(value)
    return found  # type: ignore[no-any-return]  # of the same type


def _hidden(value: Any) -> Any:
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        found = [_hidden(each) for each in value]
        is_same = all(new is old for new, old in zip(found, value, strict=True))
        return value if is_same else type(value)(found)
    if isinstance(value, Mapping):
        changed = _changes(value)
        return {**value, **changed} if changed else value
    changed = _changes({name: getattr(value, name) for name in _names(value)})
    return _replaced(value, changed) if changed else value


def _changes(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the fields whose value has to be masked, with the masked value."""
    names = TYPED_ERROR_FIELDS if TYPED in given else ERROR_FIELDS
    # An audit row holds the text of the request: an archive query may name a person.
    whole = DETAIL if ACTION in given else None
    shown = {
        name: masked(value) if name == whole or (name in names and isinstance(value, str | list)) else _hidden(value)
        for name, value in given.items()
    }
    return {name: new for name, new in shown.items() if new is not given[name] and new != given[name]}


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return tuple(getattr(value, "_fields", ()))
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in fields(value) if field.init)
    return ()


def _replaced(value: Any, changed: dict[str, Any]) -> Any:
    if isinstance(value, tuple):
        return value._replace(**changed)  # type: ignore[attr-defined]  # a NamedTuple
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changed)
    return replace(value, **changed)
