-- Invariants of jobs that wait for others, and of groups.

-- name: predecessors_counted
-- A waiting job waits for exactly its open dependencies and the open parts of its group. The dependency on a deleted job of
-- its group is not among its predecessors: it only makes a check cancel it.
select id, 'it waits for ' || pending || ' predecessors, and has ' || found
from (select id, pending,
             (select count(*) from sereno.dependencies
              where successor = jobs.id
                and (links -> 'after' @> to_jsonb(predecessor) or links -> 'calls' @> to_jsonb(predecessor)))
             + (select count(*) from sereno.group_parts
                where group_id = (links ->> 'of')::bigint and remaining > 0) as found
      from sereno.jobs where state = 'waiting' order by id desc limit %(window)s) as waiting
where pending <> found
order by id limit 20;

-- name: predecessors_exist
-- A job waits for jobs that are live, or dead and can be retried; others are about to be checked.
select successor, 'it waits for job ' || predecessor || ', which does not exist'
from (select predecessor, successor from sereno.dependencies where not to_check order by predecessor desc limit %(window)s) as open
where not exists (select from sereno.jobs where id = predecessor)
  and not exists (select from sereno.history_dead where id = predecessor)
  and exists (select from sereno.jobs where id = successor and state = 'waiting')
order by successor limit 20;

-- name: groups_counted
-- While a job waits for its group, as many jobs remain as are live or dead. Not while a deleted one is to be checked.
select id, remaining || ' of its jobs remain, and ' || found || ' are live or dead'
from (select g.id, (select coalesce(sum(remaining), 0) from sereno.group_parts where group_id = g.id) as remaining,
             (select count(*) from sereno.jobs where group_id = g.id)
             + (select count(*) from sereno.history_dead where group_id = g.id and g.on_dead <> 'continue') as found
      from (select * from sereno.groups order by id desc limit %(window)s) as g
      where exists (select from sereno.jobs where id = g.then_job and state = 'waiting')
        and not exists (select from sereno.dependencies where successor = g.then_job and to_check)) as waiting
where remaining <> found
order by id limit 20;
