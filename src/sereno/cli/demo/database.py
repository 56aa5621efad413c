"""The demo's own database: its workers and deliveries, workers of an earlier demo, and dropping its schemas."""

from collections.abc import Sequence
from typing import NamedTuple

from sereno.database.statement import Operation, Statement, queries

_sql = queries("cli/demo/database")


class DemoJobs(NamedTuple):
    """Jobs of one example system. `retried`: attempts that were followed by another."""

    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    dead: int = 0
    retried: int = 0


def others() -> Operation[list[int]]:
    """Return the process ids of workers that an earlier demo has left alive."""
    rows = yield Statement(_sql["is_there"])
    if not rows[0][0]:
        return []
    rows = yield Statement(_sql["others"])
    return [row[1] for row in rows]


def workers(systems: Sequence[str]) -> Operation[dict[str, int]]:
    """Return the process id of the worker of each system that has one."""
    return dict((yield Statement(_sql["workers"], {"systems": list(systems)})))


def jobs() -> Operation[dict[str, DemoJobs]]:
    """Return the number of jobs by the first part of the names of their tasks."""
    return {system: DemoJobs(*counts) for system, *counts in (yield Statement(_sql["jobs"]))}


def deliveries() -> Operation[list[tuple[str, str, int]]]:
    """Return how many deliveries there are by event type and state."""
    return [(kind, state, count) for kind, state, count in (yield Statement(_sql["deliveries"]))]


def reset() -> Operation[None]:
    """Drop all schemas of the demo."""
    yield Statement(_sql["reset"])
