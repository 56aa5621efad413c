"""Parses a pickle without executing it.

A pickle is a small program that may call anything. Here nothing is imported and nothing is called: an object becomes a
`PickledObject`, with its name, arguments and state. A name that the caller does not list ends the parsing.
"""

import pickletools
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from sereno.schedules.importers.draft import UnreadableSchedule

# Largest pickle in bytes: a job is a function's name and a few arguments.
LARGEST = 256 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class PickledName:
    """A name that unpickling would import: "datetime.timedelta"."""

    text: str


@dataclass(slots=True, eq=False)
class PickledObject:
    """An object that unpickling would create: its name, arguments and state."""

    name: str
    args: tuple[Any, ...]
    state: Any = None

    def attributes(self) -> dict[str, Any]:
        """Return its state by name; with slots, the state is the second item of a pair."""
        state = self.state[1] if isinstance(self.state, tuple) and len(self.state) > 1 else self.state
        if not isinstance(state, dict):
            raise UnreadableSchedule(f"contains a {self.name} without its values")
        return state


def read(data: bytes, known: AbstractSet[str]) -> Any:
    """Return the contents of a pickle of plain values and objects with known names."""
    if len(data) > LARGEST:
        raise UnreadableSchedule(f"has {len(data):,} bytes; more than {LARGEST:,} are not read")
    machine = _PickleMachine(known)
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return machine.pop()
            machine.step(opcode.name, argument)
    except (IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UnreadableSchedule(f"is a broken pickle: {error!s:.80}") from None
    raise UnreadableSchedule("is a broken pickle: it has no end")


# Opcodes that push their argument.
_VALUES = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    }
)
_CONSTANTS: Mapping[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_FRESH: Mapping[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS, _GETS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"}), frozenset({"GET", "BINGET", "LONG_BINGET"})
_SILENT = frozenset({"PROTO", "FRAME"})
# Names that the pickle protocol itself uses. None of them is called.
_GRAMMAR = frozenset(
    {
        "builtins.getattr",
        "__builtin__.getattr",
        "builtins.object",
        "__builtin__.object",
        "_codecs.encode",
        "copyreg._reconstructor",
        "copy_reg._reconstructor",
    }
)
_ZONE, _ZONE_READER = "ZoneInfo", "_unpickle"


class _PickleMachine:
    """The stack and the memo of a pickle. It builds lists, tuples, dicts with text keys, and `PickledObject`s."""

    def __init__(self, known: AbstractSet[str]) -> None:
        self._known = known
        self._stack: list[Any] = []
        self._marks: list[int] = []
        # A dict instead of a list: a pickle may use the index four billion.
        self._memo: dict[int, Any] = {}
        self._others: Mapping[str, Callable[[Any], None]] = {
            "MARK": self._mark,
            "LIST": lambda _: self._push(self._since_mark()),
            "TUPLE": lambda _: self._push(tuple(self._since_mark())),
            "DICT": lambda _: self._push(self._filled({}, self._since_mark())),
            "APPEND": lambda _: self._append([self.pop()]),
            "APPENDS": lambda _: self._append(self._since_mark()),
            "SETITEM": lambda _: self._set([self._stack.pop(-2), self.pop()]),
            "SETITEMS": lambda _: self._set(self._since_mark()),
            "MEMOIZE": lambda _: self._remember(len(self._memo)),
            "GLOBAL": lambda text: self._push(self._named(*text.split(" ", 1))),
            "STACK_GLOBAL": lambda _: self._push(self._named(self._stack.pop(-2), self.pop())),
            "NEWOBJ": lambda _: self._make(),
            "REDUCE": lambda _: self._make(),
            "BUILD": lambda _: self._build(self.pop()),
        }

    def step(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self._push(argument)
        elif name in _CONSTANTS:
            self._push(_CONSTANTS[name])
        elif name in _FRESH:
            self._push(_FRESH[name]())
        elif name in _TUPLES:
            self._push(tuple(self._taken(len(self._stack) - _TUPLES[name])))
        elif name in _PUTS:
            self._remember(argument)
        elif name in _GETS:
            self._push(self._memo[argument])
        elif name in self._others:
            self._others[name](argument)
        elif name not in _SILENT:
            raise UnreadableSchedule(f"contains the opcode {name}, which is not supported")

    def pop(self) -> Any:
        return self._stack.pop()

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def _since_mark(self) -> list[Any]:
        return self._taken(self._marks.pop())

    def _taken(self, place: int) -> list[Any]:
        if not 0 <= place <= len(self._stack):
            raise ValueError("its stack is empty")
        values = self._stack[place:]
        del self._stack[place:]
        return values

    def _remember(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def _append(self, values: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, list):
            raise TypeError("it appends to a value that is not a list")
        target.extend(values)

    def _set(self, pairs: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict):
            raise TypeError("it sets a key of a value that is not a dict")
        self._filled(target, pairs)

    @staticmethod
    def _filled(target: dict[str, Any], pairs: list[Any]) -> dict[str, Any]:
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            # JSON has text keys only, and a million numbers can be chosen so that their hashes collide.
            if not isinstance(name, str):
                raise UnreadableSchedule("contains a dict with keys that are not text")
            target[name] = value
        return target

    def _named(self, module: Any, name: Any) -> PickledName:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise TypeError("it imports a value that is not a name")
        text = f"{module}.{name}"
        if text not in self._known and text not in _GRAMMAR:
            raise UnreadableSchedule(f"contains {text!r:.80}, which is not supported")
        return PickledName(text)

    def _make(self) -> None:
        args, what = self.pop(), self.pop()
        if not (isinstance(what, PickledName) and isinstance(args, tuple)):
            raise TypeError("it calls a value that is not a name")
        self._push(self._grammar(what, args) if what.text in _GRAMMAR else PickledObject(what.text, args))

    def _grammar(self, what: PickledName, args: tuple[Any, ...]) -> Any:
        """Return the value of a call of the protocol's own names: bytes, a bare object, the constructor of a zone."""
        match what.text.rpartition(".")[2], args:
            case "encode", (str(text), "latin1"):
                return text.encode("latin1")
            case "_reconstructor", (PickledName(text=text), PickledName(), None):
                return PickledObject(text, ())
            case "getattr", (PickledName(text=text), str(name)) if text.endswith(_ZONE) and name == _ZONE_READER:
                return self._named(text, name)
        raise UnreadableSchedule(f"contains {what.text!r}, which is not supported")

    def _build(self, state: Any) -> None:
        target = self._stack[-1]
        if not isinstance(target, PickledObject):
            raise TypeError("it sets the state of a value that has none")
        target.state = state
