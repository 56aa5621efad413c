-- Releases and keys: what a job requires of the worker that runs it, and what a worker has.

-- Return whether a session with these capabilities can run a job of this task with these requirements.
--   requires      {"version": 2, "key": "2026b"}: at least this version of the task; the key of its encrypted arguments
--   capabilities  {"versions": {"export": 2}, "keys": ["2026b", "2026a"]}: a task that is not named has version 1
-- In plpgsql: a claim passes over 100,000 such jobs in 0.1 s; a function in SQL, which is not inlined there because its
-- argument is a subquery, takes 0.5 s.
create function sereno.meets(requires jsonb, task text, capabilities jsonb) returns boolean
    language plpgsql immutable parallel safe as $$
begin
    return coalesce((requires ->> 'version')::integer, 1) <= coalesce((capabilities -> 'versions' ->> task)::integer, 1)
           and (not requires ? 'key' or coalesce(capabilities -> 'keys' ? (requires ->> 'key'), false));
end $$;

-- Plain jobs are not in this index.
create index jobs_requires on sereno.jobs (queue, task, requires) where state = 'ready' and requires is not null;

-- Return what ready jobs require, each combination once, by skipping from one to the next along the index.
create function sereno.ready_requirements() returns table (queue text, task text, requires jsonb)
    language sql stable as $$
    with recursive found as (
        (select jobs.queue, jobs.task, jobs.requires from sereno.jobs
         where jobs.state = 'ready' and jobs.requires is not null
         order by jobs.queue, jobs.task, jobs.requires limit 1)
        union all
        select next.queue, next.task, next.requires
        from found cross join lateral (
            select jobs.queue, jobs.task, jobs.requires from sereno.jobs
            where jobs.state = 'ready' and jobs.requires is not null
              and (jobs.queue, jobs.task, jobs.requires) > (found.queue, found.task, found.requires)
            order by jobs.queue, jobs.task, jobs.requires limit 1
        ) as next
    )
    select found.queue, found.task, found.requires from found
$$;
