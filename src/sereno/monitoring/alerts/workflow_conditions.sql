-- Conditions of jobs that wait for others. Bounded: by the newest dead letters, and by the open jobs of groups.

-- name: dead_awaited
-- Jobs that have been dead for a while, with the jobs that wait for them: their successors, or the job after their group.
with old as materialized (
    select id, task, tenant, finished_at, group_id from sereno.history_dead
    where finished_at <= sereno.now() - make_interval(secs => %(seconds)s)
    order by finished_at desc limit %(bound)s
)
select old.id, old.task, old.finished_at, successors.number + after_group.number
from old
cross join lateral (
    select count(*) as number
    from (select from sereno.dependencies where predecessor = old.id limit 1000) as counted
) as successors
cross join lateral (
    select count(*) as number from sereno.groups
    where groups.id = old.group_id and on_dead = 'wait'
      and exists (select from sereno.jobs where jobs.id = then_job and jobs.state = 'waiting')
) as after_group
where successors.number + after_group.number > 0 and (%(tenant)s::text is null or old.tenant = %(tenant)s)
order by old.finished_at, old.id limit %(most)s;

-- name: stalled
-- Groups with open jobs of which none is running or scheduled, and none has ended for a while. The groups of open jobs are
-- found by skipping from one to the next along the index.
with recursive clock as materialized (
    select sereno.now() - make_interval(secs => %(seconds)s) as since
),
found (id, number) as (
    (select group_id, 1 from sereno.jobs where group_id is not null order by group_id limit 1)
    union all
    select next.group_id, number + 1
    from found cross join lateral (
        select group_id from sereno.jobs where group_id > found.id order by group_id limit 1
    ) as next
    where number < %(bound)s
),
quiet as materialized (
    select g.id, g.name, progress.since, progress.remaining
    from found join sereno.groups g on g.id = found.id
    cross join lateral (
        select coalesce(max(counted_at), g.created_at) as since, sum(remaining)::bigint as remaining
        from sereno.group_parts where group_id = g.id
    ) as progress
    where progress.since <= (select since from clock) and (%(tenant)s::text is null or g.tenant = %(tenant)s)
)
select id, name, since, remaining
from quiet
where not exists (
    select from (select state, run_at, created_at from sereno.jobs where group_id = quiet.id order by id limit %(bound)s) as open
    where state in ('running', 'scheduled') or greatest(run_at, created_at) > (select since from clock))
order by since, id limit %(most)s;
