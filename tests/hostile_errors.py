"""Exceptions that are hard to describe because of their text, their class, their traceback or their causes."""

from collections.abc import Callable
from typing import Any, NoReturn


class Unspeakable(Exception):  # noqa: N818 - named for the test
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Interrupting(Exception):  # noqa: N818 - named for the test
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class NamelessKind(type):
    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]  # the point
        raise RuntimeError("no name")

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__module__"):
            raise SystemExit
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=NamelessKind):  # noqa: N818 - named for the test
    pass


class Faceless(Exception):  # noqa: N818 - named for the test
    """The attributes that Python reads from an exception raise."""

    @property
    def __traceback__(self) -> NoReturn:  # type: ignore[override]  # the point
        raise RuntimeError("no traceback")

    @property
    def __cause__(self) -> NoReturn:  # type: ignore[override]  # the point
        raise RuntimeError("no cause")


class HostileText(str):
    __slots__ = ()

    def __getitem__(self, key: Any) -> NoReturn:
        raise RuntimeError("no slices")

    def encode(self, *_: Any) -> NoReturn:
        raise RuntimeError("no bytes")


class Odd(Exception):  # noqa: N818 - named for the test
    def __str__(self) -> str:
        return HostileText("odd")


def syntax() -> Exception:
    error = SyntaxError("bad template")
    error.filename, error.lineno, error.text, error.offset = "t.html", 3, "{{ x", "4"  # type: ignore[assignment]  # as template engines do
    return error


def notes() -> Exception:
    error = ValueError("x")
    error.__notes__ = 7  # type: ignore[assignment]  # the point
    return error


def loop() -> Exception:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    return first


def chain() -> Exception:
    error = ValueError("0")
    for number in range(3000):
        following = ValueError(str(number))
        following.__cause__ = error
        error = following
    return error


def groups() -> Exception:
    error: Exception = ValueError("0")
    for _ in range(2000):
        error = ExceptionGroup("g", [error])
    return error


HOSTILE: dict[str, Callable[[], BaseException]] = {
    "unspeakable": Unspeakable,
    "interrupting": Interrupting,
    "nameless": lambda: Nameless("x"),
    "faceless": Faceless,
    "odd text": Odd,
    "syntax": syntax,
    "notes": notes,
    "loop": loop,
    "chain": chain,
    "groups": groups,
    "NUL": lambda: ValueError("a\x00b"),
    "surrogate": lambda: ValueError("\ud800"),
    "group": lambda: ExceptionGroup("g", [ValueError("\x00")]),
    "surrogate in its name": lambda: type("odd", (Exception,), {"__qualname__": "a\ud800b"})("x"),
    "exit": lambda: SystemExit(3),
    "long number": lambda: ValueError(10**6000),
}
