-- Groups: created with their jobs, read, and forgotten.

-- name: create
-- A group without jobs yet; `complete` follows in the same transaction.
insert into sereno.groups (name, tenant, on_dead) values (%(name)s, %(tenant)s, %(on_dead)s) returning id;

-- name: complete
-- All jobs of the group are written: count them, and let the last job wait for them.
select sereno.complete_group(%(group_id)s, %(then_job)s);

-- name: list
-- Groups, newest first. `remaining`: jobs whose end has not counted yet. `dead`: bounded.
select g.id, g.name, g.tenant, g.total,
       coalesce((select sum(remaining) from sereno.group_parts where group_id = g.id), 0)::bigint,
       (select count(*) from (select from sereno.history_dead where group_id = g.id limit %(bound)s + 1) as dead),
       g.then_job,
       (select state from sereno.jobs where id = g.then_job
        union all
        select state from (select state from sereno.history where id = g.then_job order by finished_at desc limit 1) as past
        limit 1),
       g.on_dead, g.created_at
from sereno.groups g
where (%(id)s::bigint is null or g.id = %(id)s) and (%(before)s::bigint is null or g.id < %(before)s)
  and (%(tenant)s::text is null or g.tenant = %(tenant)s)
order by g.id desc
limit %(limit)s;

-- name: members_to_cancel
-- Jobs of groups that a dead job cancels; at most a page.
select jobs.id
from sereno.groups g
cross join lateral (
    select id from sereno.jobs
    where group_id = g.id and state in ('waiting', 'scheduled', 'ready') order by id limit %(most)s
) as jobs
where g.cancelling
limit %(most)s;

-- name: cancelled
-- Groups of which no job is left to cancel.
update sereno.groups set cancelling = false
where cancelling and not exists (
    select from sereno.jobs where group_id = groups.id and state in ('waiting', 'scheduled', 'ready'));

-- name: forget
-- Delete a page of groups that ended long ago, and whose jobs have left the history.
with old as materialized (
    select id from sereno.groups g
    where created_at < sereno.now() - make_interval(days => %(days)s)
      and not exists (select from sereno.jobs where group_id = g.id)
      and not exists (select from sereno.jobs where id = g.then_job)
      and not exists (select from sereno.history where group_id = g.id)
    order by id limit %(most)s for update skip locked
),
parts as (delete from sereno.group_parts where group_id in (select id from old))
delete from sereno.groups where id in (select id from old) returning id;

-- name: forget_deleted
-- Forget jobs that were deleted longer ago than any transaction that enqueued a job after them; at most a page.
delete from sereno.deleted_jobs
where id = any(array(select id from sereno.deleted_jobs
                     where deleted_at < sereno.now() - make_interval(days => %(days)s) limit %(most)s))
returning id;

-- name: results
-- Results of the jobs that a job waited for, by id (see the function).
select past.id, past.task, past.result::text
from sereno.jobs cross join lateral sereno.results_of(links) as past
where jobs.id = %(id)s
order by 1;
