-- Invariants of carried queues, as queries that must return no rows (see invariants.sql).

-- name: relayed_or_stored
-- The statement that moves a job into a message deletes it here: a job is never in both.
select jobs.id, 'it is also in message ' || moved.batch || ', which is to be published'
from (select batches.id as batch, ids.value::bigint as job_id
      from (select id, body from sereno.relay_batches order by id limit %(window)s) as batches
      cross join lateral json_array_elements_text(batches.body::json -> 3) as ids) as moved
join sereno.jobs on jobs.id = moved.job_id
order by jobs.id limit 20;

-- name: relayed_whole
-- A message to publish has as many ids and arguments as jobs were moved into it.
select id, 'it has ' || jobs || ' jobs, ' || json_array_length(body::json -> 3) || ' ids and '
           || json_array_length(body::json -> 5) || ' arguments'
from (select id, jobs, body from sereno.relay_batches order by id limit %(window)s) as batches
where json_array_length(body::json -> 3) <> jobs or json_array_length(body::json -> 5) <> jobs
order by id limit 20;
