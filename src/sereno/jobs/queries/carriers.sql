-- Carried queues as the command line, the HTTP API and the dashboard show them.

-- name: carriers
-- Every carried queue that a worker reported within a day, or that still has messages. A carrier is away when workers
-- have reported since, and none of them reached it; unknown when no worker reports.
with clock as materialized (select sereno.now() as now),
relay as materialized (
    select queue, count(*) as messages, sum(jobs) as jobs, min(created_at) as oldest_at
    from sereno.relay_batches group by queue
)
select state.queue, state.kind, state.address, state.direct, coalesce(carried.share, 100),
       case when state.reported_at < clock.now - make_interval(secs => %(stale)s) then 'unknown'
            when state.reached_at is null
                 or state.reached_at < state.reported_at - make_interval(secs => %(away)s) then 'away'
            else 'up' end,
       state.reported_at,
       extract(epoch from clock.now - state.reported_at)::double precision,
       state.reached_at,
       extract(epoch from clock.now - state.reached_at)::double precision,
       state.error, state.pending_messages, state.held_messages, state.redelivered_messages, state.pending_jobs,
       extract(epoch from clock.now - state.oldest_at)::double precision,
       state.bytes, state.max_bytes, state.replicas, state.current_replicas, state.leader,
       coalesce(relay.messages, 0), coalesce(relay.jobs, 0),
       extract(epoch from clock.now - relay.oldest_at)::double precision
from clock, sereno.carrier_states as state
left join sereno.carried_queues as carried on carried.queue = state.queue
left join relay on relay.queue = state.queue
where (%(queue)s::text is null or state.queue = %(queue)s)
  and (state.reported_at > clock.now - interval '1 day' or relay.messages > 0
       or state.pending_messages + state.held_messages > 0)
order by state.queue
limit %(most)s;

-- name: to_publish
-- The queue of the message that has this job and waits to be published.
select queue from sereno.relay_batches
where body::jsonb -> 3 @> to_jsonb(%(job)s::bigint)
limit 1;
