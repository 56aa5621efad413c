-- Limits: declared by code, overridden by operators, closed by operators or by throttled jobs.

-- name: declare
-- Store the declarations of a service. Overridden numbers stay; the declared ones are stored next to them. A limit of a
-- whole queue that the code no longer declares is deleted; others stay, because jobs with their key may still wait. An
-- unchanged declaration is not written.
with item as materialized (
    select * from jsonb_to_recordset(%(limits)s::text::jsonb) as i(
        name text, kind text, slots integer, units double precision, period double precision, burst double precision,
        queue text, key text, declared jsonb)
),
stored as (
    insert into sereno.limits as known (name, kind, slots, units, period, burst, queue, key, declared, declared_by)
    select name, kind, slots, units, period, burst, queue, key, declared, %(service)s from item order by name
    on conflict (name) do update
    set kind = excluded.kind, queue = excluded.queue, key = excluded.key, declared = excluded.declared,
        declared_by = excluded.declared_by,
        slots = case when known.overridden and known.kind = excluded.kind then known.slots else excluded.slots end,
        units = case when known.overridden and known.kind = excluded.kind then known.units else excluded.units end,
        period = case when known.overridden and known.kind = excluded.kind then known.period else excluded.period end,
        burst = case when known.overridden and known.kind = excluded.kind then known.burst else excluded.burst end,
        overridden = known.overridden and known.kind = excluded.kind,
        changed_at = sereno.now()
    where known.kind <> excluded.kind or known.declared is distinct from excluded.declared
       or known.queue is distinct from excluded.queue or known.key <> excluded.key
       or known.declared_by is distinct from excluded.declared_by
    returning name
),
undeclared as (
    update sereno.limits set declared = null, declared_by = null, changed_at = sereno.now()
    where declared_by = %(service)s and name <> all(array(select name from item)) and (queue is null or overridden)
),
gone as (
    delete from sereno.limits
    where declared_by = %(service)s and name <> all(array(select name from item)) and queue is not null and not overridden
),
rule as materialized (
    select * from jsonb_to_recordset(%(rules)s::text::jsonb) as r(kind text, name text, rule jsonb)
),
ruled as (
    insert into sereno.key_rules as known (kind, name, rule, declared_by)
    select kind, name, rule, %(service)s from rule order by kind, name
    on conflict (kind, name) do update set rule = excluded.rule, declared_by = excluded.declared_by
    where known.rule <> excluded.rule or known.declared_by <> excluded.declared_by
),
unruled as (
    delete from sereno.key_rules where declared_by = %(service)s and (kind, name) not in (select kind, name from rule)
),
notified as (
    select pg_notify('sereno.ready', ''), sereno.recheck(array(select name from stored)) where exists (select from stored)
)
select coalesce((select json_agg(name) from stored), '[]')::text, (select count(*) from notified);

-- name: change
-- Override a limit until `reset`; an undeclared limit is created. Waiting lanes become due.
with changed as (
    insert into sereno.limits as known (name, kind, slots, units, period, burst, queue, overridden, note, changed_by)
    values (%(name)s, %(kind)s, %(slots)s, %(units)s, %(period)s, %(burst)s, %(queue)s, true, %(note)s, %(actor)s)
    on conflict (name) do update
    set slots = excluded.slots, units = excluded.units, period = excluded.period, burst = excluded.burst,
        overridden = true, note = excluded.note, changed_by = excluded.changed_by, changed_at = sereno.now()
    where known.kind = excluded.kind
    returning name
),
notified as (select pg_notify('sereno.ready', ''), sereno.recheck(array(select name from changed)))
select (select count(*) from changed), (select count(*) from notified);

-- name: reset
-- Restore the declared numbers. An undeclared limit is deleted, unless a job or a dead letter uses it: without its numbers
-- that job could never start.
with changed as (
    update sereno.limits
    set slots = (declared ->> 'slots')::integer, units = (declared ->> 'units')::double precision,
        period = (declared ->> 'period')::double precision, burst = (declared ->> 'burst')::double precision,
        overridden = false, note = null, changed_by = %(actor)s, changed_at = sereno.now()
    where name = %(name)s and overridden and declared is not null
    returning name
),
carried as materialized (
    select true as found where exists (
        select from sereno.jobs
        where lane is not null and keys -> 'limits' @> jsonb_build_array(jsonb_build_array(%(name)s::text))
    ) or exists (
        select from sereno.history_dead
        where keys -> 'limits' @> jsonb_build_array(jsonb_build_array(%(name)s::text))
    )
),
gone as (
    delete from sereno.limits
    where name = %(name)s and declared is null and (queue is not null or not exists (select from carried))
    returning name
),
notified as (
    select pg_notify('sereno.ready', ''),
           sereno.recheck(array(select name from changed union all select name from gone))
)
select (select count(*) from changed), (select count(*) from gone), (select count(*) from notified);

-- name: names
-- The names of all limits.
select name from sereno.limits order by name limit %(most)s;

-- name: list
-- Limits with their usage, counted up to a bound: keys, jobs that hold a slot, ready jobs that wait, closed keys.
select json_build_object(
    'name', name, 'kind', kind, 'slots', slots, 'units', units, 'period', period, 'burst', burst,
    'queue', queue, 'key', key, 'declared', declared, 'declared_by', declared_by, 'overridden', overridden,
    'note', note, 'changed_by', changed_by, 'changed_at', changed_at,
    'keys', (select count(*) from (select from sereno.limiters where limit_name = limits.name limit 1001) as limiter),
    'held', (select least(1001, coalesce(sum(sereno.slots_taken(held)), 0))
             from (select held from sereno.limiters where limit_name = limits.name and held <> '{}' limit 1001) as limiter),
    'waiting', (select count(*) from (
                 select from (select id from sereno.limiters where limit_name = limits.name and check_at is not null
                              limit 1001) as limiter
                 join sereno.lanes on lanes.waits_for = limiter.id and lanes.has_work
                 join sereno.jobs on jobs.state = 'ready' and jobs.lane is not null and jobs.queue = lanes.queue
                                 and jobs.lane = lanes.id
                 limit 1001) as job)
             + (select count(*) from (
                 select from sereno.jobs
                 where state = 'ready' and lane is null and jobs.queue = limits.queue
                   and exists (select from sereno.limiters where limit_name = limits.name and check_at is not null)
                 limit 1001) as plain),
    'closed', (select count(*) from (select from sereno.limiters
                where limit_name = limits.name and closed_until > sereno.now() limit 1001) as limiter))::text
from sereno.limits
where (%(pattern)s::text is null or name like %(pattern)s) and (%(queue)s::text is null or queue = %(queue)s)
order by name
limit %(most)s;

-- name: limiters
-- The keys of a limit: closed ones first, then those that lanes wait for, then those in use.
with clock as materialized (select sereno.now() as now)
select json_build_object(
    'key', limiter.key,
    'held', array(select jobs.id from sereno.jobs
                  where jobs.id = any(limiter.held) and jobs.state = 'running' order by jobs.id limit 1000),
    'taken', sereno.slots_taken(limiter.held),
    'tokens', case when kind = 'rate' then
        least(burst, coalesce(tokens, burst) + greatest(0, extract(epoch from clock.now - used_at)) * units / period) end,
    'closed_until', case when closed_until > clock.now then closed_until end,
    'waiting', (select count(*) from (
                    select from sereno.lanes
                    join sereno.jobs on jobs.state = 'ready' and jobs.lane is not null and jobs.queue = lanes.queue
                                    and jobs.lane = lanes.id
                    where has_work and waits_for = limiter.id limit 1001) as job)
             + (select count(*) from (
                    select from sereno.jobs
                    where state = 'ready' and lane is null and jobs.queue = limits.queue and limiter.check_at is not null
                    limit 1001) as plain),
    'used_at', used_at)::text
from clock cross join lateral (
    select * from sereno.limiters
    where limit_name = %(name)s and (%(key)s::text is null or id = sereno.limiter_of(%(name)s, %(key)s))
    order by coalesce(closed_until > clock.now, false) desc, check_at is null, cardinality(held) desc, used_at desc, key
    limit %(most)s) as limiter
join sereno.limits on limits.name = limiter.limit_name;

-- name: close
-- Close a key until a time. A key that was never used gets its limiter now.
insert into sereno.limiters as limiter (id, limit_name, key, closed_until)
select sereno.limiter_of(name, %(key)s), name, %(key)s, sereno.now() + make_interval(secs => %(seconds)s)
from sereno.limits where name = %(name)s
on conflict (id) do update set closed_until = greatest(limiter.closed_until, excluded.closed_until)
returning closed_until;

-- name: open
-- Open the closed limiters of a limit.
with opened as (
    update sereno.limiters set closed_until = null, check_at = case when check_at is not null then sereno.now() end
    where limit_name = %(name)s and (%(key)s::text is null or id = sereno.limiter_of(%(name)s, %(key)s)) and closed_until > sereno.now()
    returning id
),
notified as (select pg_notify('sereno.ready', ''))
select (select count(*) from opened), (select count(*) from notified);

-- name: throttle
-- Close limits for all jobs because a service throttled this one. Without a name, all rates of the job; with a name, that
-- limit under the job's key or the given key. For a year at most, because the wait comes from the service.
with job as materialized (
    select queue, keys from sereno.jobs where id = %(id)s and attempt = %(attempt)s and session_id = %(session)s
),
passed as materialized (
    select item ->> 0 as name, item ->> 1 as key from job, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
    union
    select limits.name, '' from job join sereno.limits on limits.queue = job.queue
),
chosen as materialized (
    select limits.name, coalesce(%(key)s::text, passed.key, '') as key
    from sereno.limits left join passed on passed.name = limits.name
    where case when %(name)s::text is null then passed.name is not null and limits.kind = 'rate'
               else limits.name = %(name)s end
),
closed as (
    insert into sereno.limiters as limiter (id, limit_name, key, closed_until)
    select sereno.limiter_of(name, key), name, key, sereno.now() + make_interval(secs => least(%(seconds)s::float8, 31536000))
    from chosen
    order by 1
    on conflict (id) do update set closed_until = greatest(limiter.closed_until, excluded.closed_until)
    returning limit_name, key
)
select coalesce(json_agg(json_build_array(limit_name, key)), '[]')::text from closed;

-- name: weigh
-- Set the weight of a fair key; others have 1.
insert into sereno.weights (key, weight, changed_by) values (%(key)s, %(weight)s, %(actor)s)
on conflict (key) do update set weight = excluded.weight, changed_by = excluded.changed_by, changed_at = sereno.now();

-- name: unweigh
-- Reset the weight to 1.
delete from sereno.weights where key = %(key)s returning key;

-- name: weights
-- Keys with a weight other than 1.
select key, weight, changed_by, changed_at from sereno.weights order by weight desc, key limit %(most)s;

-- name: sweep_lanes
-- Delete lanes without work for an hour; the next job creates them again. A page of all lanes along their key: a sweep
-- reads every row once, however many are in use. Return how many were read, and the last id.
with clock as materialized (select sereno.now() - interval '1 hour' as long_ago),
page as materialized (
    select id, not has_work and served_at < (select long_ago from clock) as unused
    from sereno.lanes where id >= %(first)s order by id limit %(most)s
),
gone as (
    delete from sereno.lanes
    where id = any(array(select id from sereno.lanes
                         where id = any(array(select id from page where unused))
                           and not has_work and served_at < (select long_ago from clock)
                         order by id for update skip locked))
)
select count(*), max(id) from page;

-- name: sweep_limiters
-- Delete limiters in their initial state: no slot holder, no waiting lane, full, and open. By pages, like lanes.
with clock as materialized (select sereno.now() as now, sereno.now() - interval '1 hour' as long_ago),
page as materialized (
    select id, limit_name, tokens, check_at, used_at, closed_until
    from sereno.limiters where id >= %(first)s order by id limit %(most)s
),
unused as materialized (
    select page.id from page cross join clock left join sereno.limits on limits.name = limit_name
    where check_at is null and coalesce(closed_until < clock.now, true) and used_at < clock.long_ago
      and coalesce(tokens + extract(epoch from clock.now - used_at) * limits.units / limits.period >= limits.burst, true)
),
locked as materialized (
    select id, held, check_at, used_at, closed_until from sereno.limiters
    where id = any(array(select id from unused)) order by id for update skip locked
),
gone as (
    delete from sereno.limiters
    where id = any(array(select id from locked
                         where check_at is null and used_at < (select long_ago from clock)
                           and coalesce(closed_until < (select now from clock), true)
                           and (select true from sereno.jobs
                                where jobs.id = any(locked.held) and jobs.state = 'running' limit 1) is null))
)
select count(*), max(id) from page;

-- name: sweep_shares
-- Delete fair keys without lanes: a new lane starts at the next turn. By pages, like lanes, along the primary key.
with page as materialized (
    select queue, key from sereno.shares where (queue, key) > (%(queue)s, %(key)s) order by queue, key limit %(most)s
),
unused as materialized (
    select queue, key from page
    -- One by one, by index: joined, all lanes would be read for each page.
    where (select true from sereno.lanes where lanes.queue = page.queue and lanes.fair = page.key limit 1) is null
),
gone as (
    delete from sereno.shares
    where ctid = any(array(select place from unused cross join lateral (
              select ctid as place from sereno.shares
              where shares.queue = unused.queue and shares.key = unused.key for update skip locked) as share))
)
select count(*) over (), queue, key from page order by queue desc, key desc limit 1;
