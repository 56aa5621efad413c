-- The demo's own database: begun afresh each time, unless somebody is still at it.

-- name: others
-- Workers that may still be at work here.
select host, pid from sereno.sessions where state = 'alive' and lease_until > sereno.now();

-- name: is_there
-- Whether an earlier demo left its schema.
select to_regclass('sereno.sessions') is not null;

-- name: reset
-- Everything of the demo before this one.
drop schema if exists sereno, sereno_archive, tenders, separate_worker, reminders, reconciliation, triggers cascade;
