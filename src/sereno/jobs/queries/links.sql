-- Dependencies and groups for people to read. Every list has a bound.

-- name: open_predecessors
-- Jobs that a waiting job still waits for, by id, and how many there are.
select open.number, open.predecessor, found.task, found.state, found.tenant
from (select predecessor, count(*) over () as number from sereno.dependencies
      where successor = %(id)s order by predecessor limit %(most)s) as open
left join lateral (
    select task, state, tenant from sereno.jobs where id = open.predecessor
    union all
    (select task, state, tenant from sereno.history where id = open.predecessor order by finished_at desc limit 1)
    limit 1
) as found on true
order by open.predecessor;

-- name: linked
-- Jobs by their ids, live or finished. A job that was deleted, or is past retention, has no task and no state.
select wanted.id, found.task, found.state, found.tenant
from unnest(%(ids)s::bigint[]) as wanted(id)
left join lateral (
    select task, state, tenant from sereno.jobs where id = wanted.id
    union all
    (select task, state, tenant from sereno.history where id = wanted.id order by finished_at desc limit 1)
    limit 1
) as found on true
order by wanted.id;

-- name: successors
-- Jobs that wait for a job, by id, and how many there are.
select waits.number, waits.successor, jobs.task, jobs.state, jobs.tenant
from (select successor, count(*) over () as number
      from (select successor from sereno.dependencies
            where predecessor = %(id)s order by successor limit %(bound)s + 1) as bounded
      order by successor limit %(most)s) as waits
left join sereno.jobs on jobs.id = waits.successor
order by waits.successor;

-- name: live_states
-- Live jobs of a group by state, up to the bound.
select state, count(*) from (select state from sereno.jobs where group_id = %(id)s limit %(bound)s + 1) as counted group by state;

-- name: finished_states
-- Finished jobs of a group by state, up to the bound.
select state, count(*) from (select state from sereno.history where group_id = %(id)s limit %(bound)s + 1) as counted group by state;

-- name: inner_groups
-- Groups inside of a group whose last job still waits.
select (links ->> 'of')::bigint from sereno.jobs
where group_id = %(id)s and state = 'waiting' and links ->> 'of' is not null
order by 1;
