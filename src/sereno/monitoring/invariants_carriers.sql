-- Invariants of jobs on their way to a carrier, and of jobs that came back.

-- name: relayed_jobs_gone
-- The statement that puts a job into a message deletes it: a job that is in both runs twice. It may have come back
-- already, if the carrier has stored the message and its acknowledgement was lost.
select batch.id, 'its job ' || jobs.id || ' is also ' || jobs.state || ' in PostgreSQL'
from (select id, body from sereno.relay_batches order by id desc limit %(window)s) as batch,
     jsonb_array_elements_text(batch.body::jsonb -> 3) as member(job)
join sereno.jobs on jobs.id = member.job::bigint
where not exists (select from sereno.carried_jobs where carried_jobs.job_id = jobs.id)
order by batch.id, jobs.id limit 20;

-- name: relayed_jobs_counted
-- A message has as many ids, arguments and fields as it counts, and one task for all or one for each.
select id, 'it counts ' || jobs || ' jobs of the queue ' || queue || ', and its body has ' || ids || ' ids and ' || args
           || ' arguments of the queue ' || coalesce(named, 'null')
from (select id, queue, jobs, body ->> 1 as named, jsonb_array_length(body -> 3) as ids,
             jsonb_array_length(body -> 4) as tasks, jsonb_array_length(body -> 5) as args,
             jsonb_array_length(body -> 6) as fields
      from (select id, queue, jobs, body::jsonb as body from sereno.relay_batches order by id desc
            limit %(window)s) as newest) as batch
where jobs <> ids or jobs <> args or jobs <> fields or tasks not in (1, jobs) or named is distinct from queue
order by id limit 20;

-- name: relayed_jobs_once
-- A job is in one message.
select min(batch.id), 'its job ' || member.job || ' is in ' || count(*) || ' messages'
from (select id, body from sereno.relay_batches order by id desc limit %(window)s) as batch,
     jsonb_array_elements_text(batch.body::jsonb -> 3) as member(job)
group by member.job having count(*) > 1
order by 1 limit 20;

-- name: relay_taken_over
-- A message of a session that ended is published by another worker of its queue, while the carrier answers.
select batch.id, 'its session ' || batch.session_id || ' is ' || coalesce(owner.state, 'unknown')
                 || ', and no worker has taken it over'
from sereno.relay_batches as batch
left join sereno.sessions as owner on owner.id = batch.session_id
join sereno.carrier_states as carrier on carrier.queue = batch.queue
where owner.state is distinct from 'alive'
  and greatest(batch.created_at, owner.ended_at) < sereno.now() - make_interval(secs => %(grace)s)
  and carrier.reported_at > sereno.now() - make_interval(secs => %(grace)s)
  and carrier.reached_at > sereno.now() - make_interval(secs => %(grace)s)
  and exists (
      select from sereno.sessions as other
      where other.state = 'alive' and other.lease_until > sereno.now() and other.queues ? batch.queue
        and other.started_at < sereno.now() - make_interval(secs => %(grace)s))
order by batch.id limit 20;

-- name: carried_back_once
-- A job that came back has the position of its message, and does not leave for the carrier again after that: what a copy
-- of it does there would be refused.
select carried.job_id, case when carried.position < 1 then 'its message has the position ' || carried.position
                            else 'it is in message ' || batch.id || ', which waits to be published' end
from (select job_id, position, stored_at from sereno.carried_jobs order by job_id desc limit %(window)s) as carried
left join (select id, created_at, member.job::bigint as job
           from sereno.relay_batches, jsonb_array_elements_text(body::jsonb -> 3) as member(job)) as batch
     on batch.job = carried.job_id and batch.created_at > carried.stored_at
where carried.position < 1 or batch.id is not null
order by carried.job_id limit 20;
