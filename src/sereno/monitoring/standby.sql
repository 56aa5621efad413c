-- Positions in the log of PostgreSQL, to compare a standby with its primary.

-- name: primary_position
-- What the primary has written; all commits that have returned are before it.
select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint;

-- name: standby_position
-- What the standby has replayed, and the age of its last replayed commit in seconds.
select pg_is_in_recovery(),
       case when pg_is_in_recovery() then pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint end,
       extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp())::double precision;
