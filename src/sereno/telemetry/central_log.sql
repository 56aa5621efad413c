-- The central log: processes write it in batches.

-- name: add
-- Writes lines in the order in which they were logged. Each carries its age by the writer's monotonic clock, so that only the
-- clock of the database decides the time.
insert into sereno.logs (at, level, event, message, tenant, job_id, task, queue, trace_id, session, context, traceback)
select sereno.now() - make_interval(secs => greatest(0.0, %(now)s::double precision - seen)), level, event, message,
       tenant, job_id, task, queue, trace_id, session, coalesce(context, '{}'), traceback
from jsonb_to_recordset(%(lines)s::text::jsonb) as line(
    place integer, seen double precision, level text, event text, message text, tenant text, job_id bigint, task text,
    queue text, trace_id text, session bigint, context jsonb, traceback text)
order by place;

-- name: forget
-- Deletes a batch of the oldest lines, if they are past their retention.
delete from sereno.logs
where id in (select id from sereno.logs order by id limit %(most)s)
  and at < sereno.now() - make_interval(secs => %(seconds)s)
returning id;
