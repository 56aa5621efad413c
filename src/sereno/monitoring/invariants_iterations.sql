-- Invariants of iterations (`ctx.iterate`). Like the others, each returns no rows, or the id of a row and what is wrong.

-- name: cursors_of_attempts
-- A cursor was stored by an attempt that its job has had, and says where the next one continues.
select job_id, 'the cursor of iteration ' || name || case
    when steps.attempt not between 1 and jobs.attempt then ' is of attempt ' || steps.attempt || ', and the job is at ' || jobs.attempt
    else ' does not say where to continue' end
from sereno.steps join sereno.jobs on jobs.id = steps.job_id
where is_cursor
  and (steps.attempt not between 1 and jobs.attempt or not coalesce(result ?& array['cursor', 'items', 'done'], false))
order by job_id limit 20;
