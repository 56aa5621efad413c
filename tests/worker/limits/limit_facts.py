"""Facts for tests of limits: running handlers, waiting lanes, closed limits."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from tests.facts import advance, auntil, one


class Inside:
    """Counts running handlers by key; `most`: the highest number at once."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.starts: list[str] = []

    @contextmanager
    def here(self, *keys: str) -> Iterator[None]:
        self.starts.append(keys[0])
        for key in keys:
            self.now[key] += 1
            self.most[key] = max(self.most[key], self.now[key])
        try:
            yield
        finally:
            for key in keys:
                self.now[key] -= 1


def waiting(connection: psycopg.Connection) -> int:
    """Return the number of lanes that have jobs and wait for a limiter."""
    return int(one(connection, "select count(*) from sereno.lanes where has_work and waits_for is not null"))


def finished(connection: psycopg.Connection, task: str | None = None) -> int:
    """Return the number of jobs that are done."""
    wanted = "select count(*) from sereno.history where coalesce(task = %s, true)"
    return int(one(connection, wanted, task))


def closed(connection: psycopg.Connection, limit: str) -> list[str]:
    """Return the keys for which a limit is still closed for a long time."""
    rows = connection.execute(
        "select key from sereno.limiters where limit_name = %s and closed_until > sereno.now() + interval '30 minutes' "
        "order by key",
        [limit],
    )
    return [row[0] for row in rows]


async def advance_until(connection: psycopg.Connection, fact: Callable[[], bool], step: float) -> float:
    """Move the clock step by step until the fact is true; return the seconds that took.

    A claim that is under way while the clock jumps may see both times, so one large jump could end a little short.
    """
    total = 0.0
    while True:
        advance(connection, step)
        total += step
        try:
            await auntil(fact, timeout=0.3)
        except AssertionError:
            continue
        return total
