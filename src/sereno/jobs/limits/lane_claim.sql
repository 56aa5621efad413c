-- Lanes of jobs with limits: woken, locked, and written after the decision (see sereno.take_lanes).

-- name: open_lanes
-- Process wake-ups from an id on; return how many, the lowest id, and how many could not be read right now.
select sereno.open_lanes(%(floor)s)::text;

-- name: take
-- Lock lanes and limiters until the transaction ends.
select sereno.take_lanes(%(requests)s::text::jsonb, %(freed)s::text::jsonb)::text;

-- name: recheck
-- Make the lanes due that wait for limits changed since then. One minute earlier, because a claim in progress during the
-- change had read the old numbers.
select sereno.recheck(array(select name from sereno.limits where changed_at > %(since)s::timestamptz - interval '1 minute'));

-- name: make_limiters
-- Create the missing limiters of lanes and queues.
select sereno.make_limiters(%(lanes)s::text::bigint[], %(queues)s::text[]);

-- name: live
-- Which of these jobs still run. A statement of its own, run while the limiters are locked: a snapshot from before the
-- locks would miss jobs claimed meanwhile. A job with earlier attempts may have got other keys in between, so it is
-- returned with its limiters.
-- By the primary key alone: a condition on the state would let the planner read every running row.
with found as materialized (
    select id, state, attempt, queue, keys from sereno.jobs where id = any(%(ids)s::text::bigint[])
)
select (select to_json(array_agg(id))::text from found where state = 'running' and attempt = 1),
       (select json_agg(json_build_array(id, array(
            select sereno.limiter_of(item ->> 0, item ->> 1)
            from jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
            union all select sereno.order_of(found.queue, keys)
            union all select sereno.limiter_of(name, '') from sereno.limits where limits.queue = found.queue)))::text
        from found where state = 'running' and attempt > 1);

-- name: pick
-- Claim the decided number of jobs of each lane, by index. A lane of an order gives only its head, and nothing while a dead
-- letter blocks it. A lane without an id stands for the jobs of its queue without keys. At most `most` rows of a lane are
-- read before they are locked: paused jobs and jobs of unknown tasks are passed over. Isolated tasks and suspects are
-- claimed only if they can start at once: a job that waits for a process would block a slot of its key. Also returns the
-- lanes with more rows to read, and from where, and those that gave jobs from behind others.
with clock as materialized (select sereno.now() as now),
paused as materialized (select kind, name from sereno.pauses where kind <> 'queue'),
wanted as materialized (
    select number, lane, (%(queues)s::text[])[place] as queue, count, order_id, floor_priority, floor_seq,
           greatest(%(most)s, 2 * count) as most,
           case when %(processes)s > 0 then (%(suspects)s::integer[])[place] else 0 end as suspects
    from unnest(%(lanes)s::text::bigint[], %(places)s::text::integer[], %(counts)s::text::integer[],
                %(orders)s::text::bigint[], %(priorities)s::text::smallint[], %(seqs)s::text::bigint[])
        with ordinality as w(lane, place, count, order_id, floor_priority, floor_seq, number)
),
-- The choice of jobs must agree with sereno.pick_limited (0009_worker_functions.sql), which claims by SQL use.
-- tests/jobs/public_sql/test_limits.py runs both against the same model.
candidates as materialized (
    select job.id, wanted.number, wanted.queue, job.crashes, job.task, job.seen
    from wanted cross join lateral (
        select locked.id, crashes, task, seen
        from (select *, row_number() over () as seen from (
              select jobs.ctid as place, task, tenant, crashes, requires from sereno.jobs
              where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue and jobs.lane = wanted.lane
                and (priority, ready_seq) >= (wanted.floor_priority, wanted.floor_seq)
              order by priority, ready_seq limit wanted.most) as rows_read) as near
        cross join lateral (
            select jobs.id from sereno.jobs
            where jobs.ctid = near.place and state = 'ready' and jobs.queue = wanted.queue and jobs.lane = wanted.lane
            for update skip locked) as locked
        where task = any(%(tasks)s)
          and task <> all(array(select name from paused where kind = 'task'))
          and (tenant is null or tenant <> all(array(select name from paused where kind = 'tenant')))
          and (crashes = 0 or crashes > %(last_crash)s or (wanted.suspects > 0 and crashes <= %(most_crashes)s))
          and (%(processes)s > 0 or task <> all(%(isolated)s))
          and (requires is null or sereno.meets(
                  requires, task, (select capabilities from sereno.sessions where id = %(session)s)))
        limit wanted.count
    ) as job
    where wanted.order_id is null and wanted.lane is not null
    union all
    select job.id, wanted.number, wanted.queue, job.crashes, job.task, job.seen
    from wanted cross join lateral (
        select id, keys from sereno.jobs where order_id = wanted.order_id order by id limit 1
    ) as head
    cross join lateral (
        select id, crashes, task, null::bigint as seen from sereno.jobs
        where jobs.id = head.id and state = 'ready' and jobs.lane = wanted.lane
          and task = any(%(tasks)s)
          and task <> all(array(select name from paused where kind = 'task'))
          and (tenant is null or tenant <> all(array(select name from paused where kind = 'tenant')))
          and (crashes = 0 or crashes > %(last_crash)s or (wanted.suspects > 0 and crashes <= %(most_crashes)s))
          and (%(processes)s > 0 or task <> all(%(isolated)s))
          and (jobs.requires is null or sereno.meets(
                  jobs.requires, jobs.task, (select capabilities from sereno.sessions where id = %(session)s)))
        for update skip locked
    ) as job
    where wanted.order_id is not null
      and (select true from sereno.history_dead dead
           where dead.keys ? 'blocks' and dead.queue = wanted.queue and dead.keys ->> 'order' = head.keys ->> 'order'
           limit 1) is null
    union all
    select job.id, wanted.number, wanted.queue, job.crashes, job.task, job.seen
    from wanted cross join lateral (
        select candidate.id, candidate.crashes, candidate.task, null::bigint as seen
        from jsonb_to_recordset(%(floors)s::text::jsonb -> wanted.queue)
            as step(priority smallint, floor bigint, ceiling bigint)
        cross join lateral (
            select jobs.id, jobs.crashes, jobs.task
            from sereno.jobs
            where jobs.state = 'ready' and jobs.lane is null
              and jobs.queue = wanted.queue
              and jobs.priority = step.priority
              and jobs.ready_seq >= step.floor
              and jobs.ready_seq < coalesce(step.ceiling, 9223372036854775807)
              and jobs.task = any(%(tasks)s)
              and jobs.task <> all(array(select name from paused where kind = 'task'))
              and (jobs.tenant is null or jobs.tenant <> all(array(select name from paused where kind = 'tenant')))
              and (jobs.crashes = 0 or jobs.crashes > %(last_crash)s or (wanted.suspects > 0 and jobs.crashes <= %(most_crashes)s))
              and (%(processes)s > 0 or jobs.task <> all(%(isolated)s))
              and (jobs.requires is null or sereno.meets(
                      jobs.requires, jobs.task, (select capabilities from sereno.sessions where id = %(session)s)))
            order by jobs.ready_seq
            limit wanted.count
            for update skip locked
        ) as candidate
        limit wanted.count
    ) as job
    where wanted.lane is null
),
picked as materialized (
    select id, number from candidates where not (crashes between 1 and %(last_crash)s or task = any(%(isolated)s))
    union all
    select id, number
    from (select id, number, crashes, allowed,
                 count(*) over (order by place) as processes,
                 count(*) filter (where crashes > 0) over (order by place) as suspects,
                 count(*) filter (where crashes > 0) over (partition by queue order by place) as of_queue,
                 count(*) filter (where crashes = %(last_crash)s) over (order by place) as on_last_life
          from (select *, row_number() over () as place from candidates
                where crashes between 1 and %(last_crash)s or task = any(%(isolated)s)) as alone
          join unnest(%(queues)s::text[], %(suspects)s::integer[]) as of_queue(queue, allowed) using (queue)) as counted
    where processes <= %(processes)s
      and (crashes = 0 or (crashes <= %(most_crashes)s and of_queue <= allowed and (on_last_life = 0 or suspects = 1)))
),
short as materialized (
    select wanted.* from wanted
    left join (select number, count(*) as count from picked group by number) as got using (number)
    where order_id is null and lane is not null and wanted.count > coalesce(got.count, 0)
),
stops as materialized (
    select short.number, next.priority, next.ready_seq
    from short cross join lateral (
        select priority, ready_seq from sereno.jobs
        where state = 'ready' and jobs.lane is not null and jobs.queue = short.queue and jobs.lane = short.lane
          and (priority, ready_seq) >= (short.floor_priority, short.floor_seq)
        order by priority, ready_seq offset short.most limit 1
    ) as next
),
-- use: jobs.claimed_jobs
select (select to_json(array_agg(id))::text from picked), (select to_json(array_agg(number))::text from picked),
-- use: jobs.claimed_columns
       (select json_agg(json_build_array(number, priority, ready_seq))::text from stops),
       (select json_agg(number)::text
        from (select number from candidates group by number having max(seen) > count(*)) as behind_others)
from claimed;

-- name: mark_passed_over
-- Lanes whose floor is behind passed-over jobs: they are read from the beginning periodically.
select sereno.mark_passed_over(%(lanes)s::text::bigint[]);

-- name: reread
-- Reset the floors of marked lanes that are due; return how many.
select sereno.reread_lanes();

-- name: write
-- Write the lanes and limiters after the decision and the pick.
select sereno.write_lanes(
    %(moment)s::text::timestamptz, %(served)s::text::bigint[], %(served_queues)s::text::integer[],
    %(served_priorities)s::text::smallint[], %(served_seqs)s::text::bigint[], %(queues)s::text[],
    %(lanes)s::text::bigint[], %(waits)s::text::bigint[], %(bands)s::text::smallint[],
    %(turns)s::text::double precision[], %(priorities)s::text::smallint[], %(seqs)s::text::bigint[],
    %(seen_priorities)s::text::smallint[], %(seen_seqs)s::text::bigint[],
    %(limiters)s::text::bigint[], %(held)s::text::text[], %(tokens)s::text::double precision[],
    %(checks)s::text::double precision[], %(is_exact)s::text::boolean[], %(counts)s::text::integer[],
    %(share_queues)s::text[], %(share_keys)s::text[], %(clocks)s::text::double precision[]);

-- name: hand_over
-- Make freed limiters due that this worker cannot use, so that the next worker that checks finds them. Return those that
-- could be locked; the caller repeats the call for a limiter that a claim holds right now.
with free as materialized (
    select id from sereno.limiters where id = any(%(limiters)s) order by id for update skip locked
),
noted as (
    update sereno.limiters set check_at = sereno.now()
    where id = any(array(select id from free))
      and (select true from sereno.lanes where has_work and waits_for = limiters.id limit 1)
    returning id
),
notified as (
    select pg_notify('sereno.ready', '')
    where exists (select from noted) and exists (select from sereno.sessions where idle)
)
select coalesce((select json_agg(id) from free), '[]')::text, (select count(*) from noted), (select count(*) from notified);
