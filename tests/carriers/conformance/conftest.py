"""The two sides of the suite: the same application, with its queue in PostgreSQL and carried by JetStream."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from sereno import JetStream, Sereno
from tests.facts import auntil

POSTGRES, JETSTREAM = "postgres", "jetstream"


@dataclass(frozen=True)
class Side:
    """An application whose queue `work` is on one side. On the carried side its jobs are published directly."""

    name: str
    app: Sereno
    connection: psycopg.Connection

    @property
    def is_carried(self) -> bool:
        return self.name == JETSTREAM

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql.encode(), values).fetchall()

    async def ended(self, job_ids: Sequence[int]) -> dict[int, str]:
        """Wait until these jobs are in the history, and return their states."""

        def found() -> dict[int, str] | None:
            states = dict(self.rows("select id, state from sereno.history where id = any(%s)", list(job_ids)))
            return states if len(states) == len(job_ids) else None

        states = await auntil(found)
        assert states is not None
        return states


@pytest.fixture(params=[POSTGRES, JETSTREAM])
async def side(
    request: pytest.FixtureRequest, database_url: str, connection: psycopg.Connection
) -> AsyncIterator[Side]:
    app = Sereno(database_url)
    if request.param == JETSTREAM:
        carrier: JetStream = request.getfixturevalue("jetstream")
        app.queue("work", carrier=carrier, direct=True)
    connection.autocommit = True
    yield Side(request.param, app, connection)
    await app.aclose()
    # No test leaves a job, or a message that was not published.
    assert connection.execute("select count(*) from sereno.relay_batches").fetchall() == [(0,)]
