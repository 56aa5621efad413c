-- Invariants of what jobs require of their workers, as queries that must return no rows (see invariants.sql).

-- name: capable_sessions
-- A running job belongs to a session that meets its requirements. A session that was deleted is reported as orphaned.
select jobs.id, 'its session ' || sessions.id || ' does not have what it requires: ' || jobs.requires::text
from sereno.jobs join sereno.sessions on sessions.id = session_id
where jobs.state = 'running' and jobs.requires is not null
  and not sereno.meets(jobs.requires, jobs.task, sessions.capabilities)
order by jobs.id limit 20;

-- name: requirements_known
-- What a live job requires is a version above 1 or the id of a key: nothing else can ever be met or explained.
select id, 'it requires ' || requires::text
from (select id, requires from sereno.jobs order by id desc limit %(window)s) as jobs
where requires is not null
  and case when jsonb_typeof(requires) <> 'object' or requires = '{}' then true
           else requires - 'version' - 'key' <> '{}'
                or coalesce(jsonb_typeof(requires -> 'version') <> 'number', false)
                or coalesce(requires -> 'version' <= '1', false)
                or coalesce(jsonb_typeof(requires -> 'key') <> 'string', false) end
order by id limit 20;
