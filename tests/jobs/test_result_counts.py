"""The number fields that a return annotation declares, and what of a stored result is counted."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from sereno import Sereno
from sereno.jobs.result_counts import result_counts


@dataclass
class Report:
    found: int
    seconds: float
    new: int | None
    note: str
    is_whole: bool
    parts: dict[str, int]
    inner: "Counts"
    anything: Any


class Counts(TypedDict, total=False):
    """Counts of a run."""

    found: int
    new: Annotated[int, msgspec.Meta(ge=0)]


class Renamed(msgspec.Struct, rename="camel"):
    """Stored with other names than those of its attributes."""

    rows_read: int
    kind: Literal[1, 2] = 1


class Positional(msgspec.Struct, array_like=True):
    """Stored as an array."""

    found: int


class Pair(NamedTuple):
    """Stored as an array."""

    found: int


class Model(pydantic.BaseModel):
    """A model of pydantic."""

    found: int
    mixed: int | str
    note: str = ""


class Quoted(TypedDict("Base", {'fou"nd': int, "new": int})):
    """A name that JSON escapes."""


def test_the_fields_come_from_the_declared_type_alone(subtests: pytest.Subtests) -> None:
    for annotation, fields in (
        (Report, ("found", "new", "seconds")),
        (Counts, ("found", "new")),
        (Counts | None, ("found", "new")),
        (Annotated[Counts, "of a run"], ("found", "new")),
        (Renamed, ("rowsRead",)),
        (Model | None, ("found", "mixed")),
        (Quoted, ("new",)),
        (Positional, ()),
        (Pair, ()),
        (int, ()),
        (dict[str, int], ()),
        (list[Counts], ()),
        (Any, ()),
    ):
        with subtests.test(annotation=str(annotation)):
            counts = result_counts(annotation)
            assert (() if counts is None else counts.names) == fields


def test_only_positive_numbers_are_counted(subtests: pytest.Subtests) -> None:
    counts = result_counts(Counts)
    assert counts is not None
    for raw, found in (
        (b'{"found": 12, "new": 3.5, "other": 9, "big": {"found": 1}}', {"found": 12.0, "new": 3.5}),
        (b'{"found": 0, "new": -3}', {}),
        (b'{"found": true, "new": null}', {}),
        (b'{"found": "12", "new": [1]}', {}),
        (b'{"found": 1e300, "new": 1}', {"new": 1.0}),
        (b'{"found": 123456789012345678901234567890}', {}),
        (b"{}", {}),
        (b"null", {}),
        (b"[1, 2]", {}),
    ):
        with subtests.test(raw=raw):
            assert counts.read(raw) == found


def test_a_plain_task_and_an_encrypted_one_count_nothing(app: Sereno) -> None:
    @app.task
    async def plain() -> None: ...

    @app.task(encrypt=True)
    async def hidden() -> Counts:
        return {}

    @app.task
    async def counting() -> Counts:
        return {}

    assert plain.definition.result is None
    for task, is_counted in ((hidden, False), (counting, True)):
        assert task.definition.result is not None
        assert (task.definition.result.counts is not None) is is_counted
