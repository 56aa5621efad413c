-- Read by processes that wait for jobs to finish (jobs/finish_listener.py).

-- name: finished
-- Those of the jobs that are not live, with the end of each; a job without a state is in no table. A subquery for each
-- id and not a join: a join could be planned as a scan of all jobs.
with gone as materialized (
    select id from unnest(%(ids)s::bigint[]) as wanted(id)
    where (select true from sereno.jobs where jobs.id = wanted.id) is null
)
select gone.id, past.task, past.state, past.result, past.reason, past.error_type, past.error_message
from gone
left join lateral (
    select task, state, result::text, reason, error_type, error_message
    from sereno.history where history.id = gone.id
    order by finished_at desc limit 1
) as past on true;

-- name: announce
-- A process begins to wait; rows of processes that have gone are deleted.
with old as (delete from sereno.waiters where until < pg_catalog.clock_timestamp())
insert into sereno.waiters as mine (until) values (pg_catalog.clock_timestamp() + make_interval(secs => %(seconds)s))
returning id;

-- name: renew
-- A process still waits.
update sereno.waiters set until = pg_catalog.clock_timestamp() + make_interval(secs => %(seconds)s)
where id = %(id)s returning id;

-- name: withdraw
-- A process waits no more.
delete from sereno.waiters where id = %(id)s;
