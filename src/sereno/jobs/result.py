"""What a task returns, stored with the history of its job. The return annotation decides whether and how."""

import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from sereno.database.json_values import stored
from sereno.error_text import storable
from sereno.errors import ConfigurationError, InvalidArguments, ResultUnavailable
from sereno.jobs.arguments import decode_model
from sereno.jobs.attempt import Settlement
from sereno.jobs.encryption import RESULT, KeyRing, encrypted_text
from sereno.jobs.result_counts import result_counts


class ResultType:
    """The type of a task's result: encodes it in the worker, decodes it for its reader.

    `counts`: reads its number fields for the metrics; None if the annotation declares none.
    """

    def __init__(self, task: str, annotation: Any) -> None:
        self._task = task
        self.counts = result_counts(annotation)
        try:
            self._decoder = msgspec.json.Decoder(annotation, dec_hook=decode_model)
        except TypeError as error:
            raise ConfigurationError(
                f"task {task}: its result cannot be stored: {error}; annotate a type that has a JSON form, "
                "or declare the task with result=False"
            ) from None

    def settlement(self, value: Any, limit: int) -> Settlement:
        """Return the success of a job that returned this.

        A result that cannot be stored does not make the job fail: its work is done. The reason says what is missing.
        """
        try:
            raw = stored(value, InvalidArguments)
        except InvalidArguments as error:
            return Settlement("succeeded", reason=f"its result was not stored: {self._why(error)}")
        if len(raw) > limit:
            return Settlement(
                "succeeded",
                reason=f"its result was not stored: {len(raw):,} bytes, and max_result_bytes is {limit:,}",
            )
        return Settlement("succeeded", result=raw)

    def decode(self, job_id: int, raw: bytes) -> Any:
        """Return the value of a stored result, or raise ResultUnavailable if it is not of the annotated type."""
        try:
            return self._decoder.decode(raw)
        except Exception as error:  # noqa: BLE001 - a model's own validator may raise anything
            raise ResultUnavailable(
                f"job {job_id}: its result is not what task {self._task} is annotated to return: {self._why(error)}"
            ) from None

    def _why(self, error: Exception) -> str:
        return storable(error)


class EncryptedResultType(ResultType):
    """The result of a task with `encrypt=True`. `keys` returns the keys of the process. No error contains a value."""

    def __init__(self, task: str, annotation: Any, keys: Callable[[], KeyRing]) -> None:
        super().__init__(task, annotation)
        self._keys = keys
        # Metrics are not encrypted.
        self.counts = None

    def settlement(self, value: Any, limit: int) -> Settlement:
        made = super().settlement(value, limit)
        if made.result is None:
            return made
        try:
            sealed = self._keys().encrypt(made.result, self._task, RESULT)
        except ConfigurationError as error:
            return Settlement("succeeded", reason=f"its result was not stored: {error}")
        return Settlement("succeeded", result=msgspec.json.encode(sealed))

    def decode(self, job_id: int, raw: bytes) -> Any:
        return super().decode(job_id, opened_result(job_id, self._task, raw, self._keys()))

    def _why(self, error: Exception) -> str:
        return f"{type(error).__name__}; values of encrypted tasks are not shown"


def opened_result(job_id: int, task: str, raw: bytes, keys: KeyRing) -> bytes:
    """Return a stored result as plain JSON, or raise ResultUnavailable. One that is not encrypted stays as it is."""
    text = encrypted_text(msgspec.json.decode(raw))
    if text is None:
        return raw
    try:
        return keys.decrypt(text, task, RESULT)
    except (InvalidArguments, ConfigurationError) as error:
        raise ResultUnavailable(f"job {job_id}: {error}") from None


def result_type(
    task: str,
    function: Callable[..., Any],
    *,
    batch: bool,
    wanted: bool | None,
    keys: Callable[[], KeyRing] | None = None,
) -> ResultType | None:
    """Return the type of the result that a task keeps; None if it keeps none.

    `wanted`: the option `result`; by default a task with a return annotation keeps its result. `keys`: encrypts it.
    """
    if wanted is False or (batch and not wanted):
        return None
    if batch:
        raise ConfigurationError(f"task {task}: a batch task returns outcomes, and has no result: remove result=True")
    hints = typing.get_type_hints(function, include_extras=True)
    annotation = _without_outcomes(hints.get("return", Any if wanted else None))
    if annotation is type(None):
        return None
    return ResultType(task, annotation) if keys is None else EncryptedResultType(task, annotation, keys)


def _without_outcomes(annotation: Any) -> Any:
    """Return the annotation without the outcomes that a handler may return instead of a result (`int | Retry`)."""
    parts = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    values = [part for part in parts if not (isinstance(part, type) and issubclass(part, BaseException))]
    if not values or values == [type(None)] or annotation is typing.NoReturn:
        return type(None)
    return typing.Union[tuple(values)]  # noqa: UP007 - built from a list


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)
