"""What tests of limits look at: who is inside a handler, and who waits at a limiter."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from tests.facts import advance, auntil, one


class Inside:
    """Handlers come and go; `most` were in at once, by key."""

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
    """How many lanes have work and were told to wait."""
    return int(one(connection, "select count(*) from sereno.lanes where has_work and waits_for is not null"))


def finished(connection: psycopg.Connection, task: str | None = None) -> int:
    """How many jobs ended for good."""
    wanted = "select count(*) from sereno.history where coalesce(task = %s, true)"
    return int(one(connection, wanted, task))


def closed(connection: psycopg.Connection, limit: str) -> list[str]:
    """The keys for which a limit is closed for a long time yet."""
    rows = connection.execute(
        "select key from sereno.limiters where limit_name = %s and closed_until > sereno.now() + interval '30 minutes' "
        "order by key",
        [limit],
    )
    return [row[0] for row in rows]


async def advance_until(connection: psycopg.Connection, fact: Callable[[], bool], step: float) -> float:
    """Move the clock step by step until it is true; answers how many seconds that took.

    A claim that is under way while the clock jumps may see both times, so one great leap could end a little short.
    """
    total = 0.0
    while True:
        advance(connection, step)
        total += step
        try:
            await auntil(fact, patience=0.3)
        except AssertionError:
            continue
        return total
