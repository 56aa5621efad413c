"""Argument types: values are decoded to the annotated type."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pytest

from sereno import InvalidArguments
from sereno.jobs.arguments import Arguments


class Ctx:
    """Stands for the worker's context."""


@dataclass(frozen=True)
class AsDataclass:
    name: str
    born: date
    tags: tuple[str, ...] = ()


@attrs.define
class AsAttrs:
    name: str
    amount: Decimal


class AsTypedDict(TypedDict):
    name: str
    age: NotRequired[int]


class AsStruct(msgspec.Struct):
    name: str
    inner: AsDataclass | None = None


class Colour(Enum):
    RED = "red"


class AsModel:
    """Behaves like a pydantic model: model_validate to decode, model_dump to encode."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsModel) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]  # a mutable value

    @classmethod
    def model_validate(cls, value: Any) -> "AsModel":
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise ValueError("1 validation error for AsModel: name")  # noqa: TRY004 - as pydantic does
        return cls(value["name"])

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        if self.name == "unserializable":
            raise ValueError("a custom serializer failed")
        return {"name": self.name}


VALUES: list[tuple[Any, Any]] = [
    (int, 2**80),
    (float, 1e300),
    (bool, True),
    (str, "é \N{OLD KEY} \\u0000"),
    (bytes, b"\x00\xff"),
    (datetime, datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)),
    (datetime, datetime(2030, 1, 2, 3, 4, 5)),  # noqa: DTZ001 - as the caller gave it
    (date, date(2030, 1, 2)),
    (time, time(3, 4, 5)),
    (timedelta, timedelta(days=1, seconds=2)),
    (UUID, UUID("12345678-1234-5678-1234-567812345678")),
    (Decimal, Decimal("12.340")),
    (Colour, Colour.RED),
    (Literal["a", "b"], "b"),
    (Annotated[int, msgspec.Meta(ge=1)], 1),
    (set[int], {1, 2}),
    (tuple[int, str], (1, "a")),
    (dict[str, list[int]], {"a": [1]}),
    (int | None, None),
    (AsDataclass, AsDataclass("a", date(2030, 1, 2), ("x",))),
    (AsAttrs, AsAttrs("a", Decimal("1.50"))),
    (AsTypedDict, {"name": "a"}),
    (AsStruct, AsStruct("a", AsDataclass("b", date(2030, 1, 2)))),
    (AsModel, AsModel("a")),
    (AsModel | None, AsModel("a")),
    (list[AsModel], [AsModel("a"), AsModel("b")]),
    (dict[UUID, AsStruct], {UUID(int=1): AsStruct("a")}),
]


def arguments_of(kind: Any) -> Arguments:
    def work(value) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - annotated below

    work.__annotations__["value"] = kind
    return Arguments("work", work, context=Ctx)


def test_a_value_is_decoded_as_its_type(subtests: pytest.Subtests) -> None:
    for kind, value in VALUES:
        with subtests.test(kind=kind, value=value):
            arguments = arguments_of(kind)
            (decoded,) = arguments.decode(arguments.encode((value,), {}, 10_000))
            assert decoded == value
            assert type(decoded) is type(value)


WRONG_TYPES = (
    (datetime, "tomorrow"),
    (UUID, "x"),
    (Decimal, "x"),
    (Colour, "green"),
    (Annotated[int, msgspec.Meta(ge=1)], 0),
    (AsDataclass, {"name": "a"}),
    (AsAttrs, AsStruct("a")),
    (AsTypedDict, {"age": 1}),
    (AsStruct, {"name": 1}),
    (AsModel, {"name": 7}),
    (list[AsModel], [AsModel("a"), {"name": 7}]),
    (AsModel, AsModel("unserializable")),
    (PurePosixPath, PurePosixPath("/")),
)


def test_a_value_of_another_type_is_refused(subtests: pytest.Subtests) -> None:
    for kind, wrong in WRONG_TYPES:
        with subtests.test(kind=kind, wrong=wrong), pytest.raises(InvalidArguments, match=r"^task work: "):
            arguments_of(kind).encode((wrong,), {}, 10_000)


def test_a_model_in_an_untyped_argument_is_stored_as_its_json() -> None:
    arguments = arguments_of(Any)
    assert arguments.decode(arguments.encode(([AsModel("a")],), {}, 10_000)) == ([{"name": "a"}],)
