"""The parameters of a task as data, for forms of a server that does not have the application's code."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from sereno.database.json_values import encoder
from sereno.jobs.arguments import Arguments

ParameterType = Literal["text", "integer", "number", "boolean", "moment", "json"]

# Characters of a default as JSON, and choices of one parameter; more would be no form.
LONGEST_DEFAULT = 500
MOST_CHOICES = 50
_TYPES: Mapping[str, ParameterType] = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}
_MOMENTS = ("date-time",)


class TaskParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter. `default`: as JSON, null if it has none or a long one. `choices`: all values, if they are few.

    `encrypted`: only an application that has the key can enqueue a value.
    """

    name: str
    type: ParameterType = "json"
    required: bool = False
    nullable: bool = False
    default: str | None = None
    choices: list[str] = []
    encrypted: bool = False


def parameters_of(arguments: Arguments) -> list[TaskParameter] | None:
    """Return the parameters in the order of the function; None for a procedure, whose parameters its database knows.

    A type without a JSON form is "json".
    """
    if arguments.shape is None:
        return None
    schema = _schema(arguments)
    if schema is None:
        return [TaskParameter(name=name, encrypted=name in arguments.encrypted) for name in arguments.names]
    definitions = schema.get("$defs", {})
    shape = _resolved(schema, definitions)
    required, described = shape.get("required", []), shape.get("properties", {})
    return [
        _parameter(name, described.get(name, {}), definitions, name in required, name in arguments.encrypted)
        for name in arguments.names
    ]


def _schema(arguments: Arguments) -> dict[str, Any] | None:
    """Return the JSON schema of the arguments; None without one, as for a default that has no JSON form."""
    try:
        return msgspec.json.schema(arguments.shape, schema_hook=_any_json)
    except (TypeError, ValueError, RecursionError):
        return None


def _parameter(
    name: str, found: Mapping[str, Any], definitions: Mapping[str, Any], required: bool, encrypted: bool
) -> TaskParameter:
    options = [_resolved(each, definitions) for each in found.get("anyOf", [found])]
    values = [each for each in options if each.get("type") != "null"]
    one = values[0] if len(values) == 1 else {}
    choices = one.get("enum", [])
    is_text = bool(choices) and len(choices) <= MOST_CHOICES and all(isinstance(each, str) for each in choices)
    default = encoder.encode(found["default"]).decode() if "default" in found and not encrypted else None
    return TaskParameter(
        name=name,
        type="text" if is_text else _type(one),
        required=required,
        nullable=len(values) < len(options),
        default=default if default is None or len(default) <= LONGEST_DEFAULT else None,
        choices=list(choices) if is_text else [],
        encrypted=encrypted,
    )


def _type(schema: Mapping[str, Any]) -> ParameterType:
    if schema.get("format") in _MOMENTS:
        return "moment"
    # An enumeration of other values than texts is typed as JSON.
    return "json" if "enum" in schema else _TYPES.get(schema.get("type", ""), "json")


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found: Mapping[str, Any] = definitions.get(str(reference).rpartition("/")[2], {})
    return found


def _any_json(wanted: type) -> dict[str, Any]:  # noqa: ARG001 - the signature that msgspec calls
    """Return the schema of a type that msgspec does not know, such as a pydantic model."""
    return {}
