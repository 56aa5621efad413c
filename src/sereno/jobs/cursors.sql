-- The cursors of iterations (`ctx.iterate`): steps that are updated. Fenced by (job, attempt, session), as all that an attempt writes.

-- name: read_cursor
-- Where an earlier attempt of this job has stopped.
select result::text from sereno.steps where job_id = %(id)s and name = %(name)s and is_cursor;

-- name: keep_cursor
-- Move the cursor, by the attempt that holds the job. FOR KEY SHARE: a settlement or a rescue of the job waits for this
-- transaction or came first, and then nothing is written.
insert into sereno.steps (job_id, name, attempt, result, is_cursor)
select id, %(name)s, attempt, %(result)s::text::jsonb, true
from sereno.jobs where id = %(id)s and attempt = %(attempt)s and session_id = %(session)s
for key share
on conflict (job_id, name) do update
    set attempt = excluded.attempt, result = excluded.result, done_at = excluded.done_at
    where steps.is_cursor
returning job_id;

-- name: has_advanced
-- Whether this attempt has moved a cursor.
select exists (select from sereno.steps where job_id = %(id)s and attempt = %(attempt)s and is_cursor);
