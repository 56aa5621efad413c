-- Releases and keys: what a job requires of the worker that runs it, and what a worker has.

-- Raise an error unless these are requirements that a worker can meet.
create function sereno.check_requires(task text, requires jsonb) returns void
    language plpgsql immutable as $$
begin
    if jsonb_typeof(requires) <> 'object' or requires - '{version,key}'::text[] <> '{}'
       or (requires ? 'version' and not coalesce(requires ->> 'version' ~ '^[1-9][0-9]{0,8}$', false))
       or (requires ? 'key' and (jsonb_typeof(requires -> 'key') <> 'string' or length(requires ->> 'key') not between 1 and 200)) then
        raise exception 'task "%": a worker cannot meet the requirements %', left(task, 60), left(requires::text, 200)
            using errcode = 'invalid_parameter_value',
                  hint = 'Such as {"version": 2}, {"key": "2026b"} or both: a version is a positive integer, a key is the id of a key.';
    end if;
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
