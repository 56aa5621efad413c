"""Declarations of limits: concurrency, rates, order keys and fair keys.

    @app.task(concurrency=Limit(2, key="{tenant}"), rate=Rate(100, per="1m", name="ifood"), order_key="{account}")

A key is a template: {tenant}, {task}, {queue} and the arguments of the task by name. Jobs with the same filled-in key
share the limit. Two tasks that use the same limit name share it.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.text import NAME_LIMIT, check_text

# Template placeholders that are not arguments of the task.
WORDS = ("tenant", "task", "queue")
# Slots of a limit, and units that one job costs.
MOST_SLOTS = 1_000_000
MOST_UNITS = 1_000_000
# Bytes of a key: what an index entry can hold next to a name.
KEY_BYTES = 600
# Bounds (seconds for periods) within which the database computes rates without overflow.
SMALLEST = 1e-6
SHORTEST_PERIOD = 0.001
LONGEST_PERIOD = 366 * 86400.0
# Seconds. The default burst of a rate is the number of starts it allows in this time.
BURST_TIME = 0.1

# Same pattern as in sereno.fill_in, where the meaning of "letter" depends on the database.
_PART = re.compile(r"\{([^{}]+)\}|[^{]+|\{")
_NAME = re.compile(r"[\w.:/@-]{1,200}")


@dataclass(frozen=True, slots=True)
class Limit:
    """The number of jobs that may run at once over all workers; for each key separately, if a key is given."""

    slots: int
    key: str = ""
    name: str | None = None

    def __post_init__(self) -> None:
        if type(self.slots) is not int or not 0 <= self.slots <= MOST_SLOTS:
            raise ConfigurationError(
                f"Limit({_shown(self.slots)}): the number of slots is a whole number, 0 to {MOST_SLOTS:,}"
            )
        _check_name(self.name)
        parse(self.key)

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers as they are stored: `slots`."""
        return {"slots": self.slots}


@dataclass(frozen=True, slots=True)
class Rate:
    """The number of starts in a period over all workers; for each key separately, if a key is given.

    `burst`: how many may start at once after an idle time; by default the amount of 0.1 seconds, at least one job.
    `units`: what one job costs, a number or an argument: "{pages}".
    """

    amount: float
    per: Duration = "1s"
    key: str = ""
    name: str | None = None
    burst: float | None = None
    units: int | str = 1

    def __post_init__(self) -> None:
        if not _is_positive(self.amount):
            raise ConfigurationError(f"Rate({_shown(self.amount)}): the amount is a number above zero")
        if not SHORTEST_PERIOD <= seconds(self.per) <= LONGEST_PERIOD:
            raise ConfigurationError(f"Rate(per={_shown(self.per)}): the period is a time from 1 ms to a year")
        if self.burst is not None and (not _is_positive(self.burst) or self.burst < 1):
            raise ConfigurationError(f"Rate(burst={_shown(self.burst)}): the burst is a number, at least 1")
        if isinstance(self.units, int) and not 1 <= self.units <= MOST_UNITS:
            raise ConfigurationError(
                f"Rate(units={_shown(self.units)}): the units are a whole number, 1 to {MOST_UNITS:,}"
            )
        if isinstance(self.units, int) and self.burst is not None and self.units > self.burst:
            raise ConfigurationError(
                f"Rate(units={self.units}): a job that costs more than the burst of {self.burst:g} never starts"
            )
        _check_name(self.name)
        parse(self.key)
        parse(str(self.units))

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers as they are stored: `units` each `period` seconds, and the `burst`."""
        per_second = self.amount / seconds(self.per)
        cost = self.units if isinstance(self.units, int) else 1
        burst = self.burst if self.burst is not None else max(1, cost, math.ceil(per_second * BURST_TIME))
        return {"units": float(self.amount), "period": seconds(self.per), "burst": float(burst)}


AnyLimit = Limit | Rate
Limits = AnyLimit | Sequence[AnyLimit] | None


@dataclass(frozen=True, slots=True)
class KeyRule:
    """How the keys of a job are built. `extra`: given with the job, so the job stores the numbers of its limits."""

    limits: tuple[AnyLimit, ...] = ()
    fair: str | None = None
    order: str | None = None
    dead_blocks: bool = False
    extra: bool = False

    def __bool__(self) -> bool:
        return bool(self.limits) or self.fair is not None or self.order is not None

    @property
    def words(self) -> set[str]:
        """Return the names of the arguments that its templates use."""
        texts = [limit.key for limit in self.limits]
        texts += [str(limit.units) for limit in self.limits if isinstance(limit, Rate)]
        texts += [text for text in (self.fair, self.order) if text is not None]
        return {word for text in texts for is_word, word in parse(text) if is_word} - set(WORDS)

    def keys(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of one job, from its placeholders and arguments."""
        keys: dict[str, Any] = {}
        if self.limits:
            keys["limits"] = [self._entry(limit, values) for limit in self.limits]
        if self.fair is not None:
            keys["fair"] = fill(self.fair, values)
        if self.order is not None:
            keys["order"] = fill(self.order, values)
        if self.dead_blocks:
            keys["blocks"] = True
        return keys

    def _entry(self, limit: AnyLimit, values: Mapping[str, Any]) -> list[Any]:
        units = _units(limit, values) if isinstance(limit, Rate) else 1
        entry = [limit.name, fill(limit.key, values), units]
        return [*entry, limit.numbers] if self.extra else entry

    def as_row(self) -> dict[str, Any]:
        """Return the rule as stored for clients that enqueue without this code; sereno.keys_for reads it."""
        row: dict[str, Any] = {}
        if self.limits:
            row["limits"] = [[x.name, x.key, str(x.units) if isinstance(x, Rate) else "1"] for x in self.limits]
        if self.fair is not None:
            row["fair"] = self.fair
        if self.order is not None:
            row["order"] = self.order
        if self.dead_blocks:
            row["blocks"] = True
        return row


NO_RULE = KeyRule()


def rule(
    owner: str,
    concurrency: Limits = None,
    rate: Limits = None,
    fair_key: str | None = None,
    order_key: str | None = None,
    *,
    dead_blocks: bool = False,
) -> KeyRule:
    """Validate a declaration; limits without a name are named after their owner."""
    limits = [*_with_names(owner, "concurrency", Limit, concurrency), *_with_names(owner, "rate", Rate, rate)]
    names = [str(limit.name) for limit in limits]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"{owner}: two limits have the same name: {', '.join(sorted(names))}")
    for label, key in (("fair_key", fair_key), ("order_key", order_key)):
        if key is not None and (not isinstance(key, str) or not key):
            raise ConfigurationError(f'{owner}: {label} is a template such as "{{tenant}}", not {key!r:.40}')
        parse(key or "")
    if dead_blocks and order_key is None:
        raise ConfigurationError(f"{owner}: dead_blocks needs an order_key: it makes a dead job block its order")
    return KeyRule(tuple(limits), fair_key, order_key, dead_blocks)


def merge_keys(rules: Iterable[KeyRule | None], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a job under several rules: limits add up; the last fair and order key win.

    Sorted, so that equal keys always belong to the same lane.
    """
    found: dict[str, Any] = {}
    limits: dict[str, list[Any]] = {}
    for each in rules:
        if each:
            keys = each.keys(values)
            limits |= {entry[0]: entry for entry in keys.pop("limits", ())}
            found |= keys
    if limits:
        found["limits"] = [limits[name] for name in sorted(limits)]
    return found


def parse(template: str) -> list[tuple[bool, str]]:
    """Split a template into placeholders and literal text."""
    if not isinstance(template, str):
        raise ConfigurationError(f'a key is text such as "{{tenant}}", not {template!r:.40}')
    return [(match[1] is not None, match[1] or match[0]) for match in _PART.finditer(template)]


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Return the filled-in key; values are inserted literally."""
    key = "".join(_text(text, values.get(text)) if is_word else text for is_word, text in parse(template))
    if len(key) > NAME_LIMIT or len(key.encode("utf-8", "replace")) > KEY_BYTES:
        raise InvalidArguments(
            f"the key {key[:60]!r}… has {len(key)} characters; at most {NAME_LIMIT} characters and {KEY_BYTES} bytes"
            " are allowed"
        )
    return key


def _text(word: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str() | int():
            return str(value)
        case _:
            raise InvalidArguments(
                f"{{{word}}} cannot be part of a key: {value!r:.60} is not a text, whole number or boolean"
            )


def _units(limit: Rate, values: Mapping[str, Any]) -> int:
    if isinstance(limit.units, int):
        return limit.units
    text = fill(limit.units, values)
    try:
        return max(1, min(MOST_UNITS, int(text)))
    except ValueError:
        raise InvalidArguments(f"limit {limit.name}: units {text!r:.40} is not a whole number") from None


def _with_names(owner: str, word: str, kind: type, limits: Limits) -> list[AnyLimit]:
    given: Any = limits
    listed: list[AnyLimit] = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    found: list[AnyLimit] = []
    for number, limit in enumerate(listed, 1):
        if not isinstance(limit, kind):
            raise ConfigurationError(f"{owner}: {word}= takes {kind.__name__}(…), not {limit!r:.60}")
        default = f"{owner}.{word}" if number == 1 else f"{owner}.{word}.{number}"
        found.append(limit if limit.name else replace(limit, name=default))
    return found


def _check_name(name: str | None) -> None:
    if name is None:
        return
    check_text("limit", name)
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r:.60} is not a valid limit name: use letters, digits and _ . : / @ -")


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and SMALLEST <= value <= MOST_UNITS * 1000


def _shown(value: Any) -> str:
    """Return the value for an error message; Python refuses to print integers with very many digits."""
    try:
        return repr(value)[:40]
    except ValueError:
        return "a number with too many digits"
