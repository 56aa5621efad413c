#!/bin/sh
# Run once, by the image of PostgreSQL, after the roles are made: the login that calls the procedures. The migration
# sets its password and grants it what the allowed procedures need.
set -eu
psql --set ON_ERROR_STOP=1 --quiet --no-psqlrc --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
create role triggers_caller nologin;
alter role sereno_migrate createrole;
grant triggers_caller to sereno_migrate with admin option;
SQL
