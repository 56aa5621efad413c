-- The demo's own database: dropped at each start, unless another demo still uses it.

-- name: others
-- Workers with a valid lease: they may still be running.
select host, pid from sereno.sessions where state = 'alive' and lease_until > sereno.now();

-- name: is_there
-- Whether the schema of an earlier demo exists.
select to_regclass('sereno.sessions') is not null;

-- name: reset
-- Drops everything that the previous demo created.
drop schema if exists sereno, sereno_archive, tenders, separate_worker, reminders, reconciliation, triggers cascade;
