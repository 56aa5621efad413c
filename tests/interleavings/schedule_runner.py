"""A database and its connections: runs schedules of a scenario one after another, each from the same beginning."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

from sereno.database.connect import PLANNER
from tests.databases import REWIND_SEQUENCES
from tests.interleavings.actor import Actor
from tests.interleavings.execution import Chooser, Decision, Execution
from tests.interleavings.scenario import AnyScenario
from tests.interleavings.search import schedule_text
from tests.interleavings.verifier import Verifier

# Milliseconds after which PostgreSQL looks for a deadlock.
DEADLOCK_TIMEOUT = 20
# Schedules after which all invariants are checked, also those of empty tables.
EVERY = 100
# Schedules after which the dead rows of the earlier ones are removed.
VACUUM_EVERY = 1000

# Tables whose rows belong to the schema.
KEPT = ("migrations",)

TABLES = """
select relname from pg_class where relnamespace = 'sereno'::regnamespace and relkind = 'r' order by relname
"""
# In PL/pgSQL, because ninety small statements cost half a millisecond there.
FUNCTIONS = """
create function pg_temp.empty_tables() returns void language plpgsql as $$ begin {deletes} end $$;
create function pg_temp.filled_tables() returns text[] language plpgsql as $$
declare found text[] := '{{}}'; begin {tests} return found; end $$
"""
# Tables of archived rows, found by the index of dependencies: `pg_class` has no index by schema.
ARCHIVED = """
select relname from pg_depend join pg_class on pg_class.oid = objid
where refclassid = 'pg_namespace'::regclass and refobjid = 'sereno_archive'::regnamespace
  and classid = 'pg_class'::regclass and relkind = 'r'
"""


class ScheduleFailed(AssertionError):  # noqa: N818 - an event of the search
    """A schedule after which something is wrong."""

    def __init__(self, scenario: AnyScenario, decisions: Sequence[Decision], problem: str) -> None:
        self.decisions = decisions
        self.schedule = schedule_text(decisions)
        super().__init__(
            f"{scenario.name}: {problem}\n"
            f"  schedule: {self.schedule}\n"
            f"  repeat it: python -m tests.interleavings {scenario.name} --schedule {self.schedule!r}"
        )


@dataclass
class Tally:
    """What was searched. `blocked`: statements that waited for a lock of another actor.

    `diverged`: schedules that went another way, because two statements that waited for one transaction continue in an
    order that PostgreSQL chooses.
    """

    schedules: int = 0
    moves: int = 0
    blocked: int = 0
    diverged: int = 0

    def add(self, other: "Tally") -> None:
        self.schedules += other.schedules
        self.moves += other.moves
        self.blocked += other.blocked
        self.diverged += other.diverged

    def __str__(self) -> str:
        return (
            f"{self.schedules:>9,} schedules {self.moves:>11,} moves "
            f"{self.blocked:>9,} waits {self.diverged:>6,} diverged"
        )


class ScheduleRunner:
    """Runs schedules of one scenario. The database is migrated and empty, and used by nothing else."""

    def __init__(self, url: str, scenario: AnyScenario, *, pinned: bool = False) -> None:
        self._url = url
        self._scenario = scenario
        self._pinned = pinned
        self.tally = Tally()

    async def __aenter__(self) -> Self:
        self._plain = psycopg.connect(self._url, autocommit=True)
        self._plain.execute(PLANNER)
        # Planning the invariants takes longer than running them on a few rows.
        self._plain.execute("set plan_cache_mode = force_generic_plan")
        self._control = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        self._lines = {name: await self._open() for name in self._scenario.programs}
        self._snapshot = psycopg.connect(self._url) if self._pinned else None
        self._make_functions()
        self._plain.prepare_threshold = 0
        self._verifier = Verifier(self._plain, self._scenario.lease)
        return self

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        options = f"-c deadlock_timeout={DEADLOCK_TIMEOUT}"
        connection = await psycopg.AsyncConnection.connect(self._url, options=options, autocommit=True)
        await connection.execute(PLANNER)
        await connection.set_autocommit(False)
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
        for line in self._lines.values():
            await line.close()
        await self._control.close()
        self._plain.close()

    async def run(self, choose: Chooser, most_faults: int = 0) -> list[Decision]:
        """Run one schedule and check its end. Raises ScheduleFailed."""
        scenario = self._scenario
        world = scenario.set_up(self._plain)
        actors = [Actor(name, self._lines[name], program(world)) for name, program in scenario.programs.items()]
        execution = Execution(actors, self._control, scenario.faulty)
        self._pin()
        try:
            await execution.run(choose, most_faults)
            execution.raise_errors()
            assert not (scenario.never_waits and execution.blocked), "a statement waited for another actor"
            self._verify()
            scenario.check(self._plain, world)
        except (AssertionError, psycopg.Error) as error:
            raise ScheduleFailed(scenario, execution.decisions, f"{type(error).__name__}: {error}") from error
        finally:
            self._unpin()
            self._count(execution)
            self._reset()
        return execution.decisions

    def _pin(self) -> None:
        """Hold a snapshot from before the first move, as a long report does."""
        if self._snapshot is not None:
            self._snapshot.execute("set transaction isolation level repeatable read")
            self._snapshot.execute("select count(*) from sereno.jobs")

    def _unpin(self) -> None:
        if self._snapshot is not None:
            self._snapshot.rollback()

    def _make_functions(self) -> None:
        tables = [name for (name,) in self._plain.execute(TABLES).fetchall() if name not in KEPT]
        deletes = [sql.SQL("delete from sereno.{};").format(sql.Identifier(name)) for name in tables]
        tests = [
            sql.SQL("if exists (select from sereno.{}) then found := found || {}::text; end if;").format(
                sql.Identifier(name), sql.Literal(name)
            )
            for name in tables
        ]
        functions = sql.SQL(FUNCTIONS).format(deletes=sql.SQL("").join(deletes), tests=sql.SQL("").join(tests))
        self._plain.execute(functions)

    def _verify(self) -> None:
        filled = self._plain.execute("select pg_temp.filled_tables()").fetchone()
        self._verifier.check(frozenset(filled[0] if filled else ()))
        if self.tally.schedules % EVERY == EVERY - 1:
            self._verifier.check_all()

    def _count(self, execution: Execution) -> None:
        self.tally.schedules += 1
        self.tally.moves += len(execution.decisions)
        self.tally.blocked += execution.blocked

    def _reset(self) -> None:
        """Delete all rows, rewind the sequences and drop archived tables, without triggers and foreign keys."""
        with self._plain.transaction():
            self._plain.execute("set local session_replication_role = replica")
            self._plain.execute("select pg_temp.empty_tables()")
            self._plain.execute(REWIND_SEQUENCES)
            for (name,) in self._plain.execute(ARCHIVED).fetchall():
                self._plain.execute(sql.SQL("drop table sereno_archive.{}").format(sql.Identifier(name)))
        if self.tally.schedules % VACUUM_EVERY == 0:
            self._plain.execute("vacuum")
