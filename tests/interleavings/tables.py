"""The rows of all tables of the schema: emptied, saved, restored and dumped as text."""

from collections.abc import Sequence
from typing import LiteralString

from psycopg import sql

from tests.databases import REWIND_SEQUENCES
from tests.jobs.job_steps import Connection

# Tables whose rows belong to the schema.
KEPT = ("migrations",)
# Each with the columns that can be written.
TABLES = """
select relname, pg_class.oid, array_agg(attname::text order by attnum)
from pg_class join pg_attribute on attrelid = pg_class.oid
where relnamespace = 'sereno'::regnamespace and relkind = 'r' and attnum > 0 and not attisdropped and attgenerated = ''
group by relname, pg_class.oid order by relname
"""
# In PL/pgSQL, because ninety small statements cost much less there. Tables without pages are skipped.
EMPTY_TABLES: LiteralString = """
create or replace function pg_temp.empty_tables() returns void language plpgsql as $$ begin {deletes} end $$
"""
DUMP_TABLES: LiteralString = """
create or replace function pg_temp.dump_tables() returns json language plpgsql as $$
declare found text[][] := '{{}}'; rows text; begin {dumps} return array_to_json(found); end $$
"""
RESTORE_TABLES: LiteralString = """
create or replace function pg_temp.restore_tables() returns void language plpgsql as $$
begin {deletes} {inserts} {sequences} end $$
"""
SEQUENCES = """
select seqrelid::regclass::text, coalesce(pg_sequence_last_value(seqrelid), seqstart),
       pg_sequence_last_value(seqrelid) is not null
from pg_sequence
"""
# The clock starts at the same instant each time, so that leases and delays of saved rows are as long as at first.
SAVE_CLOCK = """
insert into sereno.clock (ahead) values ('0') on conflict (one_row) do update set ahead = clock.ahead
returning clock_timestamp() + ahead
"""
# Tables of archived rows, found by the index of dependencies: `pg_class` has no index by schema.
ARCHIVED = """
select relname from pg_depend join pg_class on pg_class.oid = objid
where refclassid = 'pg_namespace'::regclass and refobjid = 'sereno_archive'::regnamespace
  and classid = 'pg_class'::regclass and relkind = 'r'
"""


class Tables:
    """The tables, on a connection without triggers and foreign keys; the functions that it needs are temporary."""

    def __init__(self, connection: Connection) -> None:
        # For the whole connection: each change of it makes PostgreSQL forget all plans.
        connection.execute("set session_replication_role = replica")
        self._connection = connection
        self._columns: dict[str, list[str]] = {}
        self._deletes: list[sql.Composable] = []
        dumps: list[sql.Composable] = []
        for name, oid, columns in connection.execute(TABLES).fetchall():
            if name not in KEPT:
                self._columns[name] = columns
                self._deletes.append(_deleted(name, oid))
                dumps.append(_dumped(name, oid))
        self._create(EMPTY_TABLES, deletes=self._deletes)
        self._create(DUMP_TABLES, dumps=dumps)

    def empty(self) -> None:
        """Delete all rows, rewind the sequences and drop the tables of archived rows."""
        with self._connection.transaction():
            self._connection.execute("select pg_temp.empty_tables()")
            self._connection.execute(REWIND_SEQUENCES)
            for (name,) in self._connection.execute(ARCHIVED).fetchall():
                self._connection.execute(sql.SQL("drop table sereno_archive.{}").format(sql.Identifier(name)))

    def dump(self) -> dict[str, str]:
        """Return the rows of each table that has some, one on a line."""
        found = self._connection.execute("select pg_temp.dump_tables()").fetchone()
        return dict(found[0] if found else ())

    def save(self) -> None:
        """Save all rows, the sequences and the clock for `restore`."""
        inserts: list[sql.Composable] = []
        for name in self.dump().keys() - {"clock"}:
            saved = sql.Identifier("pg_temp", f"saved_{name}")
            columns = sql.SQL(", ").join(map(sql.Identifier, self._columns[name]))
            table = sql.Identifier("sereno", name)
            self._connection.execute(sql.SQL("drop table if exists {}").format(saved))
            self._connection.execute(
                sql.SQL("create temp table {} as select {} from {}").format(
                    sql.Identifier(f"saved_{name}"), columns, table
                )
            )
            insert = sql.SQL("insert into {} ({}) overriding system value select {} from {};")
            inserts.append(insert.format(table, columns, columns, saved))
        now = self._connection.execute(SAVE_CLOCK).fetchone()
        assert now is not None
        clock = sql.SQL("insert into sereno.clock (ahead) values ({} - clock_timestamp());")
        sequences = [
            sql.SQL("perform setval({}, {}, {});").format(sql.Literal(name), sql.Literal(value), sql.Literal(is_used))
            for name, value, is_used in self._connection.execute(SEQUENCES).fetchall()
        ]
        self._create(
            RESTORE_TABLES, deletes=self._deletes, inserts=[*inserts, clock.format(now[0])], sequences=sequences
        )

    def restore(self) -> None:
        """Return to what was saved last."""
        self._connection.execute("select pg_temp.restore_tables()")

    def _create(self, function: LiteralString, **parts: Sequence[sql.Composable]) -> None:
        joined = {name: sql.SQL(" ").join(each) for name, each in parts.items()}
        self._connection.execute(sql.SQL(function).format(**joined))


def _deleted(name: str, oid: int) -> sql.Composed:
    return sql.SQL("if pg_relation_size({oid}) > 0 then delete from {table}; end if;").format(
        oid=sql.Literal(oid), table=sql.Identifier("sereno", name)
    )


def _dumped(name: str, oid: int) -> sql.Composed:
    return sql.SQL(
        "if pg_relation_size({oid}) > 0 then select string_agg(each::text, E'\\n') into rows from {table} as each; "
        "if rows is not null then found := found || array[[{name}, rows]]; end if; end if;"
    ).format(oid=sql.Literal(oid), table=sql.Identifier("sereno", name), name=sql.Literal(name))
