"""Which jobs: one value for the command line, the HTTP API and the dashboard, turned into parameters of static SQL."""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from sereno.domain.lifecycle import FINAL, LIVE


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Everything that is given must hold; None means any. `error`: part of a reason, an error's type or message."""

    ids: Collection[int] | None = None
    states: Collection[str] | None = None
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None
    tag: str | None = None
    error: str | None = None
    unique_key: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it names nothing, and so finds every job there is."""
        return all(getattr(self, field.name) is None for field in fields(self))

    def within(self, states: Collection[str]) -> "JobFilter":
        """The same filter, for jobs in these states only."""
        wanted = [state for state in states if self.states is None or state in self.states]
        return replace(self, states=wanted)

    def params(self) -> dict[str, Any]:
        """Parameters of the statements that filter; a side that can hold no match is not read at all."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        ends = self.finished_after is not None or self.finished_before is not None
        return values | {
            "ids": None if self.ids is None else sorted(self.ids),
            "states": None if self.states is None else sorted(self.states),
            "live": not ends and _any_of(self.states, LIVE),
            "finished": _any_of(self.states, FINAL),
        }

    def as_detail(self) -> dict[str, Any]:
        """What was given, for the audit."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value if isinstance(value, str | datetime) else sorted(value)
            for name, value in values.items()
            if value is not None
        }

    def __str__(self) -> str:
        words = []
        for name, value in self.as_detail().items():
            if isinstance(value, list):
                text = ",".join(str(part) for part in value[:5]) + (",…" if len(value) > 5 else "")  # noqa: PLR2004 - a glimpse
            else:
                text = value.isoformat() if isinstance(value, datetime) else value
            words.append(f"{name}={text}")
        return " ".join(words) or "any"


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Which schedules; everything that is given must hold. `pattern`: a key in which * stands for anything."""

    keys: Collection[str] | None = None
    pattern: str | None = None
    task: str | None = None
    tenant: str | None = None
    states: Collection[str] | None = None
    declared_by: str | None = None

    @classmethod
    def of(cls, key_or_pattern: str | None = None, **others: Any) -> "ScheduleFilter":
        """A key as a person writes it: with a * it is a pattern."""
        if key_or_pattern is None:
            return cls(**others)
        if "*" in key_or_pattern:
            return cls(pattern=key_or_pattern, **others)
        return cls(keys=[key_or_pattern], **others)

    @property
    def is_empty(self) -> bool:
        """Whether it names nothing, and so finds every schedule there is."""
        return all(getattr(self, field.name) is None for field in fields(self))

    def params(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {
            "keys": None if self.keys is None else sorted(self.keys),
            "states": None if self.states is None else sorted(self.states),
            "pattern": None if self.pattern is None else _like(self.pattern),
        }

    def as_detail(self) -> dict[str, Any]:
        """What was given, for the audit."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value if isinstance(value, str) else sorted(value)
            for name, value in values.items()
            if value is not None
        }


def _like(pattern: str) -> str:
    """The pattern in SQL's own words: only * is special."""
    for special in "\\%_":
        pattern = pattern.replace(special, "\\" + special)
    return pattern.replace("*", "%")


def _any_of(states: Collection[str] | None, group: Collection[str]) -> bool:
    return states is None or any(state in group for state in states)
