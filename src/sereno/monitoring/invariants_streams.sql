-- Invariants of chunks that jobs emit.

-- name: chunks_in_order
-- A batch follows the one before it: its number is that of its last chunk.
select job_id, 'chunk ' || number - size + 1 || ' of attempt ' || attempt || ' follows chunk ' || before
from (select job_id, attempt, number, jsonb_array_length(chunks) as size,
             lag(number, 1, 0) over (partition by job_id, attempt order by number) as before
      from sereno.job_chunks
      where job_id = any(array(select job_id from sereno.job_streams order by job_id desc limit %(window)s))) as numbered
where number - size <> before
order by job_id limit 20;

-- name: chunks_of_attempts
-- The first batch of an attempt writes the row of the stream and deletes the chunks of earlier attempts.
select job_id, 'chunks of attempt ' || found.attempt || case
           when stream.job_id is null then ' belong to no stream'
           when found.attempt <> stream.attempt then ', but the stream is at attempt ' || stream.attempt
           else ', but the job is at attempt ' || jobs.attempt end
from (select distinct job_id, attempt from sereno.job_chunks) as found
left join sereno.job_streams as stream using (job_id)
left join sereno.jobs on jobs.id = job_id
where stream.job_id is null or found.attempt <> stream.attempt or found.attempt > jobs.attempt
order by job_id limit 20;
