"""Filters for jobs and schedules, shared by the command line, the HTTP API and the dashboard.

A filter becomes the parameters of static SQL.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from sereno.errors import InvalidArguments
from sereno.jobs.lifecycle import FINAL, LIVE
from sereno.search.sql_terms import SearchParams, like_exactly, parameter, piece_test, word_test
from sereno.search.syntax import SearchTerm

# States of finished jobs by partition: dead letters have their own.
FINISHED_PARTITIONS = (("dead",), ("succeeded", "cancelled"))


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A job matches if every field that is set matches; None: not set.

    `error`: part of the reason, or of the error's type or message. `tasks`: one of these tasks. `fingerprint`: dead
    letters with this failure, and live jobs that had it. `schedules`: created by a schedule with one of these keys.
    `group`: jobs of this group. `waits_for`: jobs that wait or waited for this job. `terms`: search terms that the
    other fields cannot express.
    `masked`: the caller sees masked error texts, so `error` must match the masked text too.
    `window`: a list reads at most this many of the newest jobs; counts and changes read all.
    """

    ids: Collection[int] | None = None
    states: Collection[str] | None = None
    queue: str | None = None
    task: str | None = None
    tasks: Collection[str] | None = None
    tenant: str | None = None
    tag: str | None = None
    error: str | None = None
    fingerprint: str | None = None
    unique_key: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    schedules: Collection[str] | None = None
    group: int | None = None
    waits_for: int | None = None
    attempts_from: int | None = None
    attempts_to: int | None = None
    terms: tuple[SearchTerm, ...] | None = None
    window: int | None = None
    masked: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether no field is set, so that every job matches."""
        return not self._set_fields()

    def within(self, states: Collection[str]) -> "JobFilter":
        """Return the same filter, restricted to jobs in these states."""
        wanted = [state for state in states if self.states is None or state in self.states]
        return replace(self, states=wanted)

    def both(self, other: "JobFilter") -> "JobFilter":
        """Return a filter for jobs that match this filter and the other."""
        joined = {field.name: _both(field.name, self, other) for field in fields(self)}
        return JobFilter(**joined)

    def params(self) -> dict[str, Any]:
        """Return SQL parameters; live or finished jobs are not read when none of them can match."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "after"}
        ends = self.finished_after is not None or self.finished_before is not None
        finished_states = [state for states in FINISHED_PARTITIONS if _any_of(self.states, states) for state in states]
        return values | {
            "ids": None if self.ids is None else sorted(self.ids),
            "states": None if self.states is None else sorted(self.states),
            "schedules": None if self.schedules is None else sorted(self.schedules),
            "tasks": None if self.tasks is None else sorted(self.tasks),
            # Not `after`: statements that page through jobs have a cursor of this name.
            "masked": bool(self.masked),
            "terms": parameter([piece_test(term) if term.path else word_test(term) for term in self.terms or ()]),
            "live": not ends and _any_of(self.states, LIVE),
            "finished": _any_of(self.states, FINAL),
            "finished_states": finished_states,
        }

    def as_detail(self) -> dict[str, Any]:
        """Return the fields that are set, for the audit log."""
        return {
            name: value if isinstance(value, str | int | datetime) else _listed(name, value)
            for name, value in self._set_fields().items()
        }

    def _set_fields(self) -> dict[str, Any]:
        # `window`, `masked` and `tasks` are set by the server, not by the caller.
        names = [field.name for field in fields(self) if field.name not in ("window", "masked", "tasks")]
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        words = []
        for name, value in self.as_detail().items():
            if isinstance(value, list):
                text = ",".join(str(part) for part in value[:5]) + (",…" if len(value) > 5 else "")  # noqa: PLR2004 - excerpt
            else:
                text = value.isoformat() if isinstance(value, datetime) else value
            words.append(f"{name}={text}")
        return " ".join(words) or "any"


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """A schedule matches if every field that is set matches. `pattern`: a key in which * stands for any text.

    `tasks`: one of these tasks. `search_params`: the conditions of a search.
    """

    keys: Collection[str] | None = None
    pattern: str | None = None
    task: str | None = None
    tasks: Collection[str] | None = None
    tenant: str | None = None
    states: Collection[str] | None = None
    declared_by: str | None = None
    search_params: SearchParams | None = None

    @classmethod
    def of(cls, key_or_pattern: str | None = None, **others: Any) -> "ScheduleFilter":
        """Build a filter from a key or, if it contains a *, from a pattern."""
        if key_or_pattern is None:
            return cls(**others)
        if "*" in key_or_pattern:
            return cls(pattern=key_or_pattern, **others)
        return cls(keys=[key_or_pattern], **others)

    @property
    def is_empty(self) -> bool:
        """Return whether no field is set, so that every schedule matches."""
        return all(getattr(self, field.name) is None for field in fields(self))

    @classmethod
    def again(cls, params: dict[str, Any]) -> "ScheduleFilter":
        """Rebuild a filter from its parameters, without keys and pattern."""
        names = ("task", "tasks", "tenant", "states", "declared_by")
        terms = params["terms"]
        search_params = None if terms is None else SearchParams("", terms)
        return cls(**{name: params[name] for name in names}, search_params=search_params)

    def params(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "search_params"}
        given = values | {
            "keys": None if self.keys is None else sorted(self.keys),
            "states": None if self.states is None else sorted(self.states),
            "tasks": None if self.tasks is None else sorted(self.tasks),
            "pattern": None if self.pattern is None else _like(self.pattern),
        }
        if self.search_params is None:
            return given | {"terms": None}
        # A whole key or tenant in the search becomes a parameter of its own, so that an index is used.
        keys, tenant = self.search_params.values("key"), self.search_params.one("tenant")
        found = {"keys": keys if self.keys is None else given["keys"], "tenant": self.tenant or tenant}
        return given | found | {"terms": self.search_params.terms}

    def as_detail(self) -> dict[str, Any]:
        """Return the fields that are set, for the audit log. `q`: the search text."""
        names = [field.name for field in fields(self) if field.name not in ("search_params", "tasks")]
        values = {name: getattr(self, name) for name in names}
        if self.search_params is not None and self.search_params.text:
            values["q"] = self.search_params.text
        return {
            name: value if isinstance(value, str) else sorted(value)
            for name, value in values.items()
            if value is not None
        }


def _like(pattern: str) -> str:
    """Return the pattern for SQL LIKE: only * is special."""
    return like_exactly(pattern).replace("*", "%")


def _listed(name: str, values: Collection[Any]) -> list[Any]:
    return [str(term) for term in values] if name == "terms" else sorted(values)


def _both(name: str, one: JobFilter, other: JobFilter) -> Any:
    """Return the value of one field that satisfies both filters."""
    mine, theirs = getattr(one, name), getattr(other, name)
    if mine is None or theirs is None:
        return mine if theirs is None else theirs
    if name == "terms":
        return (*mine, *theirs)
    if name in ("ids", "states", "schedules", "tasks"):
        return [each for each in mine if each in set(theirs)]
    if name.endswith(("_after", "_from")):
        return max(mine, theirs)
    if name.endswith(("_before", "_to")) or name == "window":
        return min(mine, theirs)
    if mine != theirs:
        raise InvalidArguments(f"{name} is given twice, as {mine!r:.60} and {theirs!r:.60}: give it once")
    return mine


def _any_of(states: Collection[str] | None, group: Collection[str]) -> bool:
    return states is None or any(state in group for state in states)


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """A delivery matches if every field that is set matches; None: not set. `recipient`: a key within `tenant`.

    `search_params`: additional terms of a search.
    """

    states: Collection[str] | None = None
    channel: str | None = None
    recipient: str | None = None
    event: int | None = None
    tenant: str | None = None
    since: datetime | None = None
    # Fields of the event.
    type: str | None = None
    subject: str | None = None
    search_params: SearchParams | None = None

    @property
    def is_empty(self) -> bool:
        return all(getattr(self, field.name) is None for field in fields(self))

    def params(self) -> dict[str, Any]:
        """Return the parameters of the filtering statements. Whole values in the search use an index."""
        found = self._fields() | {"ids": None, "terms": None}
        search = self.search_params
        if search is None:
            return found
        if self.event is None and (event := search.one("event_id")) is not None:
            found["event"] = int(event)
        for name in ("channel", "subject"):
            found[name] = found[name] or search.one(name)
        found["states"] = found["states"] or search.values("state")
        return found | {"ids": search.numbers("id"), "terms": search.terms}

    def as_detail(self) -> dict[str, Any]:
        """Return the fields that are set, for the audit log. `q`: the search text."""
        search = {} if self.search_params is None else {"q": self.search_params.text}
        return {name: value for name, value in self._fields().items() if value is not None} | search

    def _fields(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "search_params"}
        return values | {"states": None if self.states is None else sorted(self.states)}
