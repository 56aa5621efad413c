#!/bin/sh
# Run once, by the image of PostgreSQL, after 10-roles.sh: the schema of the example's own tables has the name of the
# database. What the migration creates in it, a worker and the server may read and write.
set -eu
psql --set ON_ERROR_STOP=1 --quiet --no-psqlrc --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    --set tables="$POSTGRES_DB" <<'SQL'
create schema :"tables" authorization sereno_migrate;
grant usage on schema :"tables" to sereno_worker, sereno_server;
alter default privileges for role sereno_migrate in schema :"tables"
    grant select, insert, update, delete on tables to sereno_worker, sereno_server;
alter default privileges for role sereno_migrate in schema :"tables"
    grant usage on sequences to sereno_worker, sereno_server;
SQL
