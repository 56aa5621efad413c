"""Reads sizes, rows, sequences and the state of vacuum from PostgreSQL."""

from collections import defaultdict

import psycopg
from psycopg import sql

from tests.facts import one, until
from tests.soak.figures import RelationFigures, family

# Tables of sereno and of PostgreSQL's catalog, which grows when partitions come and go; their indexes and TOAST tables.
RELATIONS = """
with tables as (
    select pg_class.oid, nspname, relname, reltoastrelid,
           coalesce((select option_value from pg_options_to_table(reloptions)
                     where option_name = 'autovacuum_vacuum_threshold'),
                    current_setting('autovacuum_vacuum_threshold'))::integer as threshold
    from pg_class join pg_namespace n on n.oid = relnamespace
    where relkind = 'r' and nspname in ('sereno', 'sereno_archive', 'pg_catalog')
)
select nspname, relname, null, pg_relation_size(oid), pg_stat_get_dead_tuples(oid), threshold from tables
union all
select nspname, tables.relname, i.relname, pg_relation_size(i.oid), 0, threshold
from tables join pg_index on indrelid = tables.oid join pg_class i on i.oid = indexrelid
union all
select nspname, relname, 'toast', pg_total_relation_size(reltoastrelid), pg_stat_get_dead_tuples(reltoastrelid),
       threshold
from tables where reltoastrelid <> 0
"""
TABLES = """
select nspname, relname from pg_class join pg_namespace n on n.oid = relnamespace
where relkind = 'r' and nspname in ('sereno', 'sereno_archive')
"""
SEQUENCES = "select sequencename, coalesce(last_value, 0) from pg_sequences where schemaname = 'sereno'"
FROZEN_AGE = "select max(age(relfrozenxid)) from pg_class where relkind in ('r', 't')"
VACUUMS = "select sum(vacuum_count + autovacuum_count)::bigint from pg_stat_user_tables"
# Tables with more dead rows than autovacuum tolerates, by the parameters of the table or of the server.
BEHIND = """
select relname
from pg_class
join pg_namespace n on n.oid = relnamespace
left join lateral (
    select (select option_value from pg_options_to_table(reloptions)
            where option_name = 'autovacuum_vacuum_threshold') as threshold,
           (select option_value from pg_options_to_table(reloptions)
            where option_name = 'autovacuum_vacuum_scale_factor') as share
) as own on true
where relkind in ('r', 't') and nspname in ('sereno', 'sereno_archive', 'pg_catalog', 'pg_toast')
  and pg_stat_get_dead_tuples(pg_class.oid)
      > coalesce(threshold, current_setting('autovacuum_vacuum_threshold'))::float
        + coalesce(share, current_setting('autovacuum_vacuum_scale_factor'))::float * greatest(reltuples, 0)
order by relname
"""
# Seconds. Autovacuum checks each second, so only a table that it cannot clean needs longer.
VACUUM_TIMEOUT = 60.0
SCHEMAS = {"sereno": "", "sereno_archive": "archive:", "pg_catalog": "catalog:"}


def relations(connection: psycopg.Connection) -> dict[str, RelationFigures]:
    """Return the figures of all relations, partitions and batches added up."""
    found: dict[str, RelationFigures] = defaultdict(RelationFigures)
    for schema, table, part, size, dead, threshold in connection.execute(RELATIONS):
        name = f"{SCHEMAS[schema]}{family(table)}" + (f".{family(part)}" if part else "")
        figures = found[name]
        figures.relations += 1
        figures.bytes += size
        figures.dead += dead
        figures.threshold += threshold
    for schema, table in connection.execute(TABLES).fetchall():
        query = sql.SQL("select count(*) from {}").format(sql.Identifier(schema, table))
        row = connection.execute(query).fetchone()
        found[f"{SCHEMAS[schema]}{family(table)}"].rows += row[0] if row else 0
    return dict(sorted(found.items()))


def sequences(connection: psycopg.Connection) -> dict[str, int]:
    return dict(connection.execute(SEQUENCES).fetchall())


def frozen_age(connection: psycopg.Connection) -> int:
    return int(one(connection, FROZEN_AGE))


def vacuums(connection: psycopg.Connection) -> int:
    return int(one(connection, VACUUMS))


def behind(connection: psycopg.Connection) -> list[str]:
    """Return the tables that autovacuum does not reach in time, while there is little work."""

    def too_many_dead() -> list[str]:
        return [name for (name,) in connection.execute(BEHIND)]

    try:
        until(lambda: not too_many_dead(), VACUUM_TIMEOUT)
    except AssertionError:
        return too_many_dead()
    return []
