"""The parameters of a task as data: names, types, defaults and choices."""

import decimal
import enum
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest

from sereno import Sereno
from sereno.jobs.parameters import TaskParameter, parameters_of


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Item(msgspec.Struct):
    code: str


class Unknown:
    """A type that msgspec does not know."""


EXPECTED = [
    TaskParameter(name="account", type="text", required=True),
    TaskParameter(name="count", type="integer", default="3"),
    TaskParameter(name="share", type="number", nullable=True, default="null"),
    TaskParameter(name="dry", type="boolean", default="false"),
    TaskParameter(name="at", type="moment", nullable=True, default="null"),
    TaskParameter(name="mode", type="text", default='"fast"', choices=["fast", "slow"]),
    TaskParameter(name="size", type="text", default='"small"', choices=["large", "small"]),
    TaskParameter(name="item", type="json", nullable=True, default="null"),
    TaskParameter(name="some", type="json"),
    TaskParameter(name="either", type="json", default="1"),
    TaskParameter(name="level", type="json", default="1"),
]


def test_types_defaults_and_choices_come_from_the_signature() -> None:
    app = Sereno("postgresql://127.0.0.1:1/nowhere")

    @app.task
    def work(
        account: str,
        count: Annotated[int, msgspec.Meta(ge=1)] = 3,
        share: float | None = None,
        dry: bool = False,
        at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None,
        mode: Literal["fast", "slow"] = "fast",
        size: Size = Size.SMALL,
        item: Item | None = None,
        some: list[int] = [],  # noqa: B006 - a default that each job copies
        either: int | str = 1,
        level: Literal[1, 2] = 1,
    ) -> None: ...

    assert parameters_of(work.definition.arguments) == EXPECTED


def test_a_signature_without_a_schema_has_its_names() -> None:
    app = Sereno("postgresql://127.0.0.1:1/nowhere")

    @app.task
    def work(thing: Unknown, other: Any = None, price: decimal.Decimal = decimal.Decimal(1)) -> None: ...

    found = parameters_of(work.definition.arguments)
    assert found is not None
    assert [(each.name, each.type) for each in found] == [("thing", "json"), ("other", "json"), ("price", "json")]


def test_a_long_default_is_left_out_and_encrypted_arguments_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Sereno("postgresql://127.0.0.1:1/nowhere")

    @app.task(encrypt=["card"])
    def pay(card: str, note: str = "x" * 600) -> None: ...

    found = parameters_of(pay.definition.arguments)
    assert found is not None
    card, note = found
    assert (card.encrypted, note.encrypted, note.default) == (True, False, None)


def test_the_parameters_of_a_procedure_are_unknown() -> None:
    app = Sereno("postgresql://127.0.0.1:1/nowhere")
    app.procedure("reporting.close_day")
    assert [parameters_of(task.arguments) for task in app.registry] == [None]
