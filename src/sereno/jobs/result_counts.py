"""The number fields of a task's result, such as `found` and `new`: they are summed in the worker's metrics.

Their names come from the return annotation alone, never from data, so that the number of metrics is bounded.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

# The largest value that is counted; sums stay finite.
MOST = 1e18
# No name in JSON has them without an escape, so msgspec refuses them.
_QUOTES = frozenset('"\\')


class ResultCounts:
    """Reads the declared number fields from a stored result. The other fields are skipped without being decoded."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        """`fields`: names in the stored result, by a valid name of a Python attribute."""
        # Decoded as any value: a field may also be null, or hold what was stored by other code.
        shape = msgspec.defstruct("Counts", [(name, Any, None) for name in fields], rename=dict(fields))
        self._decoder = msgspec.json.Decoder(shape)
        self.names = tuple(fields.values())

    def read(self, raw: bytes) -> dict[str, float]:
        """Return the positive numbers of a result; a counter can only rise."""
        try:
            found = msgspec.structs.astuple(self._decoder.decode(raw))
        except msgspec.DecodeError:
            return {}
        return {name: float(value) for name, value in zip(self.names, found, strict=True) if _is_count(value)}


def result_counts(annotation: Any) -> ResultCounts | None:
    """Return the reader of the number fields that this return annotation declares; None if it declares none."""
    names = sorted({name for name in _number_fields(annotation) if name.isprintable() and not _QUOTES & set(name)})
    return ResultCounts({f"field_{number}": name for number, name in enumerate(names)}) if names else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST


def _number_fields(annotation: Any) -> Iterator[str]:
    for kind in _alternatives(_type_info(annotation)):
        match kind:
            case inspect.StructType(array_like=False) | inspect.TypedDictType() | inspect.DataclassType():
                yield from (field.encode_name for field in kind.fields if _is_number(field.type))
            case inspect.CustomType():
                # A pydantic model.
                declared = getattr(kind.cls, "model_fields", None) or {}
                for name, field in declared.items():
                    if _is_number(_type_info(field.annotation)):
                        yield name


def _type_info(annotation: Any) -> inspect.Type:
    try:
        return inspect.type_info(annotation)
    except TypeError:
        # A type that this version of msgspec cannot describe has no fields that could be counted.
        return inspect.AnyType()


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """Return the types of a union, without their metadata."""
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return tuple(each for part in kind.types for each in _alternatives(part))
    return (kind,)


def _is_number(kind: inspect.Type) -> bool:
    return any(isinstance(each, inspect.IntType | inspect.FloatType) for each in _alternatives(kind))
