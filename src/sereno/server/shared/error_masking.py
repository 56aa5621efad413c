"""What errors say, for those who only look: without what looks like a secret or an address of somebody.

Operators, who work with errors, see them whole. What is hidden here is not found by a search either: see `searching`.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import msgspec

from sereno.access.identity import Principal
from sereno.access.masking import masked
from sereno.database.statement import Operation

T = TypeVar("T")

# Fields of rows and of answers that hold what code, a provider or a database said when something went wrong.
SAID = frozenset({"error", "error_message", "last_error", "traceback", "reason", "words", "sentences"})
# A kind of failure also has what its newest one said; a line of the log, whose message was masked before, has no type.
TYPED = "error_type"
SAID_OF_TYPED = SAID | {"message"}
ACTION, DETAIL = "action", "detail"


def sees_all(who: Principal) -> bool:
    """Whether errors are shown to them as they are."""
    return who.may("operator")


def hidden_in(operation: Operation[T]) -> Operation[T]:
    """The same, for those who only look."""
    found = yield from operation
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        # Sentences, such as those that answer why.
        return masked(found)  # type: ignore[no-any-return]  # a list of texts again
    return hidden(found)


def hidden(value: T) -> T:
    """The same rows, records and JSON; what hides nothing comes back as it was. Nothing is changed in place."""
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
    """Those values that are shown otherwise than they are."""
    said = SAID_OF_TYPED if TYPED in given else SAID
    # An audit row holds the text of the request: an archive query may name a person.
    whole = DETAIL if ACTION in given else None
    shown = {
        name: masked(value) if name == whole or (name in said and isinstance(value, str | list)) else _hidden(value)
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
