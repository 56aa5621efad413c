"""Arguments of a task that accepts any parameters by name: only the procedure's database knows the names."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from sereno.database.json_values import stored
from sereno.jobs.arguments import Arguments
from sereno.jobs.task import TaskDefinition
from sereno.procedures.procedure import LONGEST_PART, ProcedureName

_parameters = msgspec.json.Decoder(dict[str, Any])


class ProcedureArguments(Arguments):
    """Any parameters by name, checked against the procedure's signature when it is called."""

    # Does not call the base class, which reads the parameters of a Python function.
    def __init__(self, task: str, target: str, procedure: ProcedureName, words: Collection[str] = ()) -> None:
        """`words`: the parameters that limit keys of the task use."""
        self._task = task
        self.target = target
        self.procedure = procedure
        self.names = tuple(sorted(words))
        self.context_name = "ctx"

    def calls(self, target: str, procedure: ProcedureName) -> bool:
        """Return whether the task calls this procedure."""
        return (self.target, self.procedure) == (target, procedure)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], limit: int) -> bytes:
        if args:
            raise self._refusal("a procedure takes its parameters by name")
        for name in kwargs:
            if not 0 < len(name) <= LONGEST_PART:
                raise self._refusal(f"{name!r:.60} is not a name of a parameter")
        raw = stored(dict(kwargs), self._refusal)
        if len(raw) > limit:
            raise self._refusal(
                f"{len(raw):,} bytes of parameters, the limit is {limit:,}; store it elsewhere, pass a reference"
            )
        return raw

    def keyed(self, raw: bytes) -> dict[str, Any]:
        return _parameters.decode(raw)

    @property
    def defaults(self) -> dict[str, Any]:
        """Return nothing: only the database knows the defaults."""
        return {}

    def decode(self, raw: msgspec.Raw | bytes) -> tuple[Any, ...]:
        try:
            return (_parameters.decode(raw),)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._refusal(str(error)) from None

    def call(self, function: Callable[..., Any], values: tuple[Any, ...], context: Any) -> Any:
        return function(context, values[0])


def calling_task(tasks: Iterable[TaskDefinition], target: str, procedure: ProcedureName) -> str | None:
    """Return the name of the first task that calls this procedure."""
    for task in tasks:
        known = task.arguments
        if isinstance(known, ProcedureArguments) and known.calls(target, procedure):
            return task.name
    return None
