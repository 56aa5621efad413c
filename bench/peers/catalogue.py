"""The peers, each in its best documented configuration (see the head of its program)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

REQUIREMENTS = Path(__file__).with_name("requirements")


@dataclass(frozen=True)
class Peer:
    name: str
    # What people call it, and how it is configured here.
    title: str
    described: str
    language: Literal["python", "node"]
    # Number of jobs that one worker drains in a few seconds.
    jobs: int
    # A query that returns true as long as a job is not acknowledged.
    pending: str
    # Name of the program and the requirements, which the configurations of one peer share.
    package: str = ""
    # Passed to the worker, for a peer with more than one configuration.
    configuration: str = ""
    # False for a second configuration of a worker, which enqueues no differently.
    measure_enqueue: bool = True
    # A statement that writes settings to the peer's own tables.
    settings: str = ""
    # The slowest peers enqueue about 500 a second, so this takes them a few seconds.
    jobs_one_by_one: int = 3000
    least_python: tuple[int, int] = (3, 11)

    @property
    def program(self) -> str:
        return self.package or self.name

    @property
    def requirements(self) -> Path:
        """The file that pins its versions."""
        return REQUIREMENTS / f"{self.program}.{'txt' if self.language == 'python' else 'json'}"

    @property
    def version(self) -> str:
        """The pinned version of the product itself, which is first in the file."""
        text = self.requirements.read_text()
        if self.language == "python":
            return text.splitlines()[0].split("==")[1]
        return str(next(iter(json.loads(text)["dependencies"].values())))


GRAPHILE_PENDING = "select exists (select from graphile_worker._private_jobs)"

# awa appends claims and closures to separate tables; its own view of jobs takes minutes for 50,000 of them.
AWA_PENDING = """
    select exists (select from awa.leases)
        or (select count(*) from awa.lease_claims)
            + (select coalesce(sum(claimed_count), 0) from awa.lease_claim_batches)
            > (select count(*) from awa.lease_claim_closures)
            + (select coalesce(sum(closed_count), 0) from awa.lease_claim_closure_batches)
"""

PEERS = (
    Peer(
        name="graphile_batched",
        title="Graphile Worker",
        described="96 jobs at a time, local queue of 1000, completion in batches; deletes finished jobs",
        package="graphile",
        configuration="batched",
        language="node",
        jobs=200_000,
        pending=GRAPHILE_PENDING,
        measure_enqueue=False,
    ),
    Peer(
        name="graphile",
        title="Graphile Worker",
        described="24 jobs at a time, one job per claim; deletes finished jobs",
        configuration="single",
        language="node",
        jobs=10_000,
        pending=GRAPHILE_PENDING,
    ),
    Peer(
        name="pgqueuer",
        title="PgQueuer",
        described="asyncpg, uvloop, batches of 1000; stores a log row for each change of a job",
        language="python",
        jobs=80_000,
        pending="select exists (select from pgqueuer)",
    ),
    Peer(
        name="pgboss",
        title="pg-boss",
        described="batches of 1000, fetched without a pause while they are full; keeps finished jobs",
        language="node",
        jobs=100_000,
        pending="select exists (select from pgboss.job where name = 'bench' and state < 'completed')",
    ),
    Peer(
        name="procrastinate",
        title="Procrastinate",
        described="psycopg, uvloop, 20 jobs at a time; deletes finished jobs",
        language="python",
        jobs=3_000,
        pending="select exists (select from procrastinate_jobs)",
    ),
    Peer(
        name="oban",
        title="Oban for Python",
        described="psycopg, uvloop, queue limit of 100; keeps finished jobs",
        language="python",
        jobs=20_000,
        pending="select exists (select from oban_jobs where state <> 'completed')",
        least_python=(3, 12),
    ),
    Peer(
        name="awa",
        title="awa",
        described="Rust core, COPY for bulk, 1024 workers, four enqueue shards; keeps closures of finished jobs",
        language="python",
        jobs=50_000,
        pending=AWA_PENDING,
        settings="insert into awa.queue_meta (queue, enqueue_shards) values ('bench', 4)",
    ),
)
