-- Why a job with limits does not start. By key and by index; every count has a bound.

-- name: limiters
-- The limiters of a job: those of its own keys and those of its queue, each with its numbers and slot holders. A limit
-- given with the job is not unknown, only not stored yet.
with clock as materialized (select sereno.now() as now),
job as materialized (select queue, lane, keys from sereno.jobs where id = %(id)s),
passed as materialized (
    select item ->> 0 as name, item ->> 1 as key, (item ->> 2)::integer as cost, false as of_queue,
           item -> 3 is not null as is_given, sereno.limiter_of(item ->> 0, item ->> 1) as id
    from job, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
    union all
    select limits.name, '', 1, true, false, sereno.limiter_of(limits.name, '')
    from job join sereno.limits on limits.queue = job.queue
)
select passed.name, passed.key, passed.cost, passed.of_queue,
       case when passed.is_given then coalesce(kind, 'given') else coalesce(kind, 'unknown') end,
       limits.slots, limits.units, limits.period, limits.burst,
       case when kind = 'rate' then
           least(burst, coalesce(tokens, burst) + greatest(0, extract(epoch from clock.now - used_at)) * units / period)
       end::double precision,
       case when closed_until > clock.now then closed_until end,
       greatest(0, extract(epoch from check_at - clock.now))::double precision,
       coalesce((select has_work and waits_for = passed.id from sereno.lanes where lanes.id = (select lane from job)), false),
       coalesce(sereno.slots_taken(held), 0), inside.count, inside.first
from clock cross join passed
left join sereno.limits on limits.name = passed.name
left join sereno.limiters on limiters.id = passed.id
cross join lateral (
    select count(*) as count,
           coalesce(json_agg(json_build_array(running.id, task, extract(epoch from clock.now - claimed_at), session_id)
                             order by claimed_at, running.id) filter (where number <= %(most)s), '[]') as first
    from (select id, task, claimed_at, session_id, row_number() over (order by claimed_at, id) as number
          from sereno.jobs
          where id = any(held[greatest(1, cardinality(held) - %(bound)s):]) and state = 'running') as running
) as inside
order by passed.of_queue, passed.name, passed.key;

-- name: lane
-- The place of a ready job among those with the same keys, and of its lane among others: lanes with an earlier turn that
-- wait for the same limiter, or for none and take fair turns.
with job as materialized (select queue, lane, priority, ready_seq, keys from sereno.jobs where id = %(id)s),
own as materialized (select id, queue, fair, turn, waits_for, has_work from sereno.lanes where id = (select lane from job)),
front as materialized (
    select other.id, other.fair, other.turn
    from own cross join lateral (
        (select id, fair, turn from sereno.lanes
         where has_work and waits_for is null and lanes.queue = own.queue and lanes.band = 10 and lanes.turn < own.turn
           and own.waits_for is null and own.fair is not null
         order by turn limit %(bound)s + 1)
        union all
        (select id, fair, turn from sereno.lanes
         where has_work and waits_for = own.waits_for and lanes.turn < own.turn
         order by turn limit %(bound)s + 1)
    ) as other
    where own.has_work and other.id <> own.id and (own.fair is null or other.fair is distinct from own.fair)
)
select (select count(*) from (select from sereno.jobs
                              where state = 'ready' and jobs.lane is not null
                                and jobs.queue = job.queue and jobs.lane = job.lane
                                and (priority, ready_seq) < (job.priority, job.ready_seq)
                              limit %(bound)s + 1) as ahead),
       (select count(*) from front),
       keys ->> 'fair',
       coalesce((select weight from sereno.weights where key = keys ->> 'fair'), 1)::double precision,
       (select count(distinct fair) from front),
       (select fair from front where fair is not null order by turn limit 1)
from job;

-- name: order
-- The order of a job: its head, how many jobs are before and behind it, and a dead letter that blocks the key.
with job as materialized (select id, queue, order_id, keys from sereno.jobs where id = %(id)s and order_id is not null),
dead as materialized (
    select past.id, past.task
    from job cross join lateral (
        select id, task from sereno.history_dead
        where history_dead.keys ? 'blocks' and history_dead.queue = job.queue
          and history_dead.keys ->> 'order' = job.keys ->> 'order'
        limit 100
    ) as past
)
select job.keys ->> 'order', head.id, head.task, head.state,
       extract(epoch from sereno.now() - head.claimed_at)::double precision, head.run_at, head.session_id,
       (select count(*) from (select from sereno.jobs
                              where jobs.order_id = job.order_id and jobs.id < job.id limit %(bound)s + 1) as before),
       (select count(*) from (select from sereno.jobs
                              where jobs.order_id = job.order_id and jobs.id > job.id limit %(bound)s + 1) as behind),
       (select id from dead order by id limit 1), (select task from dead order by id limit 1)
from job cross join lateral (
    select id, task, state, claimed_at, run_at, session_id from sereno.jobs
    where jobs.order_id = job.order_id order by id limit 1
) as head;
