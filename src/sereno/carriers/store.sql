-- Carried queues: jobs that leave for the carrier, and jobs that come back.

-- name: next_ids
-- The first of a block of a million ids.
select nextval('sereno.direct_ids');

-- name: shares
-- The queues whose share was set, with their share in per cent.
select coalesce(json_object_agg(queue, share), '{}')::text from sereno.carried_queues;

-- name: set_share
-- Set the share of new jobs that the carrier of a queue gets.
insert into sereno.carried_queues (queue, share) values (%(queue)s, %(share)s)
on conflict (queue) do update set share = excluded.share, changed_at = excluded.changed_at;

-- name: store
-- Store carried jobs as running jobs of this session, unless they are stored already. An id that `jobs` has is that of a job
-- that came home before, or of a message that no application has published: that job is not touched.
-- Returns those that this session has stored, now or in an earlier call whose reply was lost.
with wanted as materialized (
    select * from jsonb_to_recordset(%(jobs)s::text::jsonb) as w(
        id bigint, task text, queue text, args jsonb, priority smallint, tenant text, trace text, tags text[],
        run_at timestamptz, created_at timestamptz, held_for double precision, position bigint)
),
noted as (
    insert into sereno.carried_jobs (job_id, queue, position, session_id)
    select id, queue, position, %(session)s from wanted
    where id <> all(array(select jobs.id from sereno.jobs where jobs.id = any(array(select wanted.id from wanted))))
    order by id
    on conflict (job_id) do nothing
    returning job_id
),
made as (
    insert into sereno.jobs (id, task, queue, args, priority, tenant, trace, tags, run_at, created_at, claimed_at,
                             state, session_id, attempt)
    select id, task, queue, args, priority, tenant, trace, tags, least(run_at, sereno.now()), created_at,
           sereno.now() - make_interval(secs => held_for), 'running', %(session)s, 1
    from wanted where id in (select job_id from noted)
)
select coalesce(json_agg(job_id), '[]')::text
from (
    select job_id from noted
    union all
    select job_id from sereno.carried_jobs
    where job_id = any(array(select id from wanted)) and session_id = %(session)s
) as mine;

-- name: record
-- Store successes in the history, each once: a job that has an outcome already, or is stored, keeps that.
-- Returns those that this session has recorded, now or in an earlier call whose reply was lost.
with clock as materialized (select sereno.now() as now),
wanted as materialized (
    select * from json_to_recordset(%(jobs)s::text::json) as w(
        id bigint, task text, queue text, args jsonb, priority smallint, tenant text, trace text, tags text[],
        run_at timestamptz, created_at timestamptz, held_for double precision, position bigint, began double precision,
        result jsonb, reason text)
),
noted as (
    insert into sereno.carried_jobs (job_id, queue, position, session_id)
    select id, queue, position, %(session)s from wanted order by id
    on conflict (job_id) do nothing
    returning job_id
),
recorded as (
    insert into sereno.history_done (
        id, session_id, finished_at, started_at, run_at, created_at, attempt, failures, crashes, snoozes, releases,
        priority, state, queue, task, tenant, trace, tags, args, result, reason)
    select id, %(session)s, now, now - make_interval(secs => held_for - began), least(run_at, now), created_at, 1, 0, 0,
           0, 0, priority, 'succeeded', queue, task, tenant, trace, tags, args, result, reason
    from wanted, clock where id in (select job_id from noted)
)
select coalesce(json_agg(job_id), '[]')::text,
       (select sereno.notify_finished(array(select job_id from noted)) where exists (select from sereno.waiters))
from (
    select job_id from noted
    union all
    select job_id from sereno.carried_jobs
    where job_id = any(array(select id from wanted)) and session_id = %(session)s
) as mine;

-- name: park
-- Store what cannot become a job (an undecodable message, arguments that PostgreSQL refuses) as a dead job, once. The bytes
-- belong to what is recognised: a carrier that has lost its disks begins with the same positions again.
with noted as (
    insert into sereno.carried_jobs (job_id, queue, position, session_id)
    select coalesce(%(job)s, nextval(pg_get_serial_sequence('sereno.jobs', 'id'))), %(queue)s, %(position)s, %(session)s
    where %(job)s is not null or not exists (
        select from sereno.carried_jobs join sereno.history on history.id = carried_jobs.job_id
        where carried_jobs.queue = %(queue)s and position = %(position)s and history.reason = %(reason)s
          and history.args = %(args)s::text::jsonb)
    on conflict (job_id) do nothing
    returning job_id
)
insert into sereno.history (id, session_id, finished_at, started_at, run_at, created_at, attempt, failures, crashes,
                            snoozes, releases, priority, state, queue, task, args, reason)
select job_id, %(session)s, sereno.now(), sereno.now(), sereno.now(), sereno.now(), 1, 1, 0, 0, 0, 5, 'dead', %(queue)s,
       %(task)s, %(args)s::text::jsonb, %(reason)s
from noted;

-- name: stored
-- Those of the jobs of a message that are, or were, stored here.
select coalesce(json_agg(job_id), '[]')::text from sereno.carried_jobs where job_id = any(%(ids)s);

-- name: forget_stored
-- Every message up to this position was acknowledged: none of its jobs is delivered again, and the workers that may still
-- have an earlier delivery have noticed it. Nothing is deleted while an earlier message is still to be published, or a
-- repeated one to be acknowledged: the same jobs may be in it. SKIP LOCKED: all workers of a queue do this.
with acknowledged as (
    delete from sereno.repeated_messages where queue = %(queue)s and position <= %(position)s
)
delete from sereno.carried_jobs
where job_id = any(array(
    select job_id from sereno.carried_jobs
    where queue = %(queue)s and stored_at < sereno.now() - make_interval(secs => %(kept)s) and position <= %(position)s
      and not exists (select from sereno.relay_batches
                      where relay_batches.queue = %(queue)s
                        and created_at < sereno.now() - make_interval(secs => %(kept)s))
      and not exists (select from sereno.repeated_messages as repeated
                      where repeated.queue = %(queue)s and repeated.position > %(position)s)
    limit 10000
    for update skip locked));

-- name: carry
-- Put claimed jobs into one message to publish. Jobs that need what only PostgreSQL has stay, and run from here; so do jobs
-- that came home from a message that may be delivered again, because that one keeps them from being stored twice. With a
-- share of 0 all of them stay: a worker may have read the share before its carrier was given up.
-- Also returns which of the jobs the session still has: after a lost reply, those that are gone must not run here.
with mine as materialized (
    select id from sereno.jobs
    where id = any(%(ids)s) and session_id = %(session)s and state = 'running' and attempt = 1
),
gone as (
    delete from sereno.jobs
    where id = any(%(ids)s) and session_id = %(session)s and state = 'running' and attempt = 1
      and unique_key is null and expires_at is null and keys is null and requires is null and group_id is null
      and links is null and has_successors is not true and schedule_id is null and not cancel_requested
      and id <> all(array(select job_id from sereno.carried_jobs where job_id = any(%(ids)s)))
      -- Jobs that were enqueued after they were claimed may wait for them.
      and id <> all(array(select predecessor from sereno.dependencies where predecessor = any(%(ids)s)))
      and not exists (select from sereno.carried_queues where carried_queues.queue = %(queue)s and share = 0)
    returning id, task, args, priority, tenant, trace, tags, run_at, created_at
),
numbered as (select *, row_number() over (order by id) - 1 as index from gone),
kept as (
    insert into sereno.relay_batches (queue, session_id, jobs, body)
    select %(queue)s, %(session)s, count(*),
           json_build_array(
               1, %(queue)s::text, extract(epoch from sereno.now())::double precision, json_agg(id order by id),
               json_agg(task order by id), json_agg(args order by id),
               json_agg(json_build_array(index, priority, tenant, trace, tags, run_at, created_at) order by id))::text
    from numbered
    having count(*) > 0
    returning id, body
)
select (select id from kept), (select body from kept),
       (select coalesce(json_agg(id), '[]')::text from mine where id not in (select id from gone));

-- name: published
-- Delete a message that the carrier has stored. If it may have stored it before, its position is noted: so it may if it
-- was published more than once, or if another worker has published it meanwhile.
with gone as (
    delete from sereno.relay_batches where id = %(id)s returning id
)
insert into sereno.repeated_messages (queue, position)
select %(queue)s, %(position)s where %(repeated)s::boolean or not exists (select from gone)
on conflict do nothing;

-- name: take_batches
-- Take over messages of sessions that are not alive any more, and find those of this session that were not published.
with found as materialized (
    select id from sereno.relay_batches
    where queue = any(%(queues)s)
      and (session_id = %(session)s or not exists (
          select from sereno.sessions where sessions.id = relay_batches.session_id and state = 'alive'))
    order by id
    limit %(most)s
    for update skip locked
)
update sereno.relay_batches set session_id = %(session)s
where id = any(array(select id from found))
returning id, queue, body;

-- name: return_batches
-- Store the jobs of messages that were not published as ready jobs again: their carrier is given up. A worker may have
-- published one of them whose acknowledgement was lost. So each job gets a fence at a position that no message reaches:
-- the outcome of a copy is refused. A job whose copy was stored here before has that one's fence, and does not return.
with gone as (
    delete from sereno.relay_batches
    where queue = %(queue)s and (%(batch)s::bigint is null or id = %(batch)s)
    returning queue, body::jsonb as body
),
fenced as (
    insert into sereno.carried_jobs (job_id, queue, position, session_id)
    select member::bigint, queue, 9223372036854775807, 0
    from gone, jsonb_array_elements_text(body -> 3) as member
    order by 1
    on conflict (job_id) do nothing
    returning job_id
),
back as (
    insert into sereno.jobs (id, task, queue, args, priority, tenant, trace, tags, run_at, created_at, state, ready_seq)
    select (body -> 3 ->> place)::bigint,
           body -> 4 ->> (case when jsonb_array_length(body -> 4) = 1 then 0 else place end), queue, body -> 5 -> place,
           (body -> 6 -> place ->> 1)::smallint, body -> 6 -> place ->> 2, body -> 6 -> place ->> 3,
           case when jsonb_typeof(body -> 6 -> place -> 4) = 'array'
                then array(select jsonb_array_elements_text(body -> 6 -> place -> 4)) end,
           (body -> 6 -> place ->> 5)::timestamptz, (body -> 6 -> place ->> 6)::timestamptz, 'ready',
           nextval('sereno.ready_seq')
    from gone, generate_series(0, jsonb_array_length(body -> 3) - 1) as place
    where (body -> 3 ->> place)::bigint in (select job_id from fenced)
    returning id
)
select count(*) from back;

-- name: unpublished
-- Those of the messages that this session still has to publish: an operator may have returned their jobs.
select coalesce(json_agg(id), '[]')::text from sereno.relay_batches
where id = any(%(ids)s) and session_id = %(session)s;
