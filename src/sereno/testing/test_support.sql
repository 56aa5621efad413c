-- Support for users' tests: empties the schema, moves the clock, and queries jobs and deliveries.

-- name: disconnect_others
-- Disconnects other clients of this schema, left by an earlier test, such as a worker that was killed.
select pg_terminate_backend(pid)
from (select distinct pid from pg_locks
      where database = (select oid from pg_database where datname = current_database()) and pid <> pg_backend_pid()
        and relation in (select oid from pg_class
                         where relnamespace = to_regnamespace(split_part('sereno.jobs', '.', 1)))) as late;

-- name: written_tables
-- The tables that have been written to since they were last emptied, except the applied migrations and the duties.
select quote_ident(nspname) || '.' || quote_ident(relname)
from pg_class join pg_namespace on pg_namespace.oid = relnamespace
where nspname = split_part('sereno.jobs', '.', 1) and relkind = 'r' and relname not in ('migrations', 'duties')
  and pg_relation_size(pg_class.oid) > 0
order by 1;

-- name: restart_ids
-- Ids start at 1 again, except those of sessions: a worker left by an earlier test must not find a session with its own id.
select count(setval(seqrelid::regclass, seqstart, false))
from pg_sequence join pg_depend on classid = 'pg_class'::regclass and objid = seqrelid and deptype in ('a', 'i')
where refobjid in (select oid from pg_class
                   where relnamespace = to_regnamespace(split_part('sereno.jobs', '.', 1)) and relname <> 'sessions')
  and pg_sequence_last_value(seqrelid) is not null;

-- name: restart_duties
-- As if maintenance had just been done: it is due again when the clock has moved far enough, as in a database in use.
update sereno.duties set done_at = sereno.now();

-- name: archived
-- Archived partitions that are not dropped yet.
select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables
where schemaname = split_part('sereno_archive.x', '.', 1)
order by 1;

-- name: travel
-- Moves the clock of the schema; the leases of live sessions move with it.
with moved as (
    update sereno.sessions set lease_until = lease_until + make_interval(secs => %(seconds)s)
    where state = 'alive' and %(leases)s
)
insert into sereno.clock (ahead) values (make_interval(secs => %(seconds)s))
on conflict (one_row) do update set ahead = clock.ahead + excluded.ahead;

-- name: now
-- The time of the schema.
select sereno.now();

-- name: count_unfinished
-- Counts the jobs of these queues that are running, ready or due; and what is still to do for jobs that wait for others:
-- ended predecessors to check, and groups whose jobs are to be cancelled.
select (select count(*) from (
    select 1 from sereno.jobs
    where queue = any(%(queues)s)
      and (state in ('ready', 'running') or (state = 'scheduled' and run_at <= sereno.now()))
    limit 1000) as found),
(select count(*) from (
    select 1 from sereno.dependencies
    where to_check and not exists (select from sereno.jobs where id = predecessor and state = 'running')
    union all
    select 1 from sereno.groups where cancelling
    limit 1000) as found);

-- name: open_predecessors
-- Jobs that a waiting job still waits for: its predecessors, or the jobs of the group that it follows.
select predecessor from sereno.dependencies where successor = %(id)s
union
select member.id from sereno.jobs follows join sereno.jobs member on member.group_id = (follows.links ->> 'of')::bigint
where follows.id = %(id)s
union
select dead.id from sereno.jobs follows join sereno.history_dead dead on dead.group_id = (follows.links ->> 'of')::bigint
where follows.id = %(id)s
order by 1;

-- name: jobs
-- Jobs, live and ended, in the order of their creation.
select id, task, state, queue, tenant, args, run_at, attempt, reason, error_type, error_message, sereno.trace_id(trace)
from (select id, task, state, queue, tenant, args, run_at, attempt, null as reason, null as error_type, null as error_message, trace
      from sereno.jobs
      union all
      select id, task, state, queue, tenant, args, run_at, attempt, reason, error_type, error_message, trace from sereno.history) as job
where (%(task)s::text is null or task = %(task)s) and (%(state)s::text is null or state = %(state)s)
order by id;

-- name: deliveries
-- Deliveries with their recipients, in the order of their creation.
select d.id, e.type, e.subject, r.key, nullif(d.tenant, ''), d.channel, d.state, d.reason, d.attempts, d.error_message
from sereno.deliveries d
join sereno.events e on e.id = d.event_id
join sereno.recipients r on r.id = d.recipient_id
where (%(event)s::text is null or e.type = %(event)s) and (%(recipient)s::text is null or r.key = %(recipient)s)
  and (%(channel)s::text is null or d.channel = %(channel)s)
order by d.id;
