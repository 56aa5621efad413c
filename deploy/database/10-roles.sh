#!/bin/sh
# Run once, by the image of PostgreSQL, when the database is new: one login for each kind of process. What each may do
# is set by `sereno migrate --roles create`, which finds them here and creates none.
set -eu
psql --set ON_ERROR_STOP=1 --quiet --no-psqlrc --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    --set migrate="$MIGRATE_PASSWORD" --set worker="$WORKER_PASSWORD" --set server="$SERVER_PASSWORD" <<'SQL'
create role sereno_owner nologin;
create role sereno_reader nologin;
create role sereno_producer nologin;
create role sereno_procedure nologin;
create role sereno_worker login password :'worker';
create role sereno_server login password :'server';
create role sereno_migrate login password :'migrate' in role sereno_owner;
select format('grant create on database %I to sereno_owner', current_database()) \gexec
revoke create on schema public from public;
SQL
