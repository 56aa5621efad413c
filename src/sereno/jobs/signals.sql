-- Signals and the jobs that wait for them.
--
-- No lock connects a sender with the settlement of a waiting job, so the two may miss each other while both are open.
-- Therefore each of them is checked once after its commit: `check_waits` searches the signals of a wait, `check_signals`
-- the waits for a signal. Whichever was committed last sees the other one.
-- Both lock with SKIP LOCKED and wait for no transaction of an application. A job that is locked is checked again.

-- name: send
-- Store a signal and wake the jobs that wait for it (see the function).
select sereno.signal(%(name)s, %(value)s::text::jsonb, %(tenant)s, %(trace)s);

-- name: receive
-- The signals that a running job waits for, or the row of its wait: the first call decides when the wait times out.
-- FOR KEY SHARE: a settlement of the job waits for this statement and then deletes the row; or it came first, and nothing
-- is written.
with clock as materialized (select sereno.now() as now),
mine as materialized (
    select id, tenant, created_at from sereno.jobs
    where id = %(id)s and attempt = %(attempt)s and session_id = %(session)s
    for key share
),
found as materialized (
    select one.id, one.value, one.trace from mine cross join lateral (
        (select signals.id, signals.value, signals.trace from sereno.signals
         where %(which)s = 'first' and name = %(name)s and coalesce(signals.tenant, '') = coalesce(mine.tenant, '')
           and sent_at >= mine.created_at
         order by signals.id limit 1)
        union all
        (select signals.id, signals.value, signals.trace from sereno.signals
         where %(which)s = 'latest' and name = %(name)s and coalesce(signals.tenant, '') = coalesce(mine.tenant, '')
           and sent_at >= mine.created_at
         order by signals.id desc limit 1)
        union all
        (select signals.id, signals.value, signals.trace from sereno.signals
         where %(which)s = 'all' and name = %(name)s and coalesce(signals.tenant, '') = coalesce(mine.tenant, '')
           and sent_at >= mine.created_at
         order by signals.id limit %(most)s)
    ) as one
),
placed as (
    insert into sereno.signal_waits (job_id, name, tenant, since, until)
    select mine.id, %(name)s, mine.tenant, mine.created_at,
           least(clock.now + make_interval(secs => %(timeout)s::double precision), %(never)s::timestamptz)
    from mine, clock where not exists (select from found)
    on conflict (job_id, name) do update set name = excluded.name
    returning until
)
select (select count(*) from mine), (select json_agg(value order by id)::text from found), (select until from placed),
       coalesce((select until <= now from placed, clock), false),
       (select array_agg(trace order by id) from found where trace is not null);

-- name: keep_answer
-- End a wait: store its answer as a step, once, by the attempt that holds the job, and delete the row of the wait.
with kept as (
    insert into sereno.steps (job_id, name, attempt, result, position, pending)
    select id, %(step)s, attempt, %(result)s::text::jsonb, %(position)s, %(pending)s::text[]
    from sereno.jobs where id = %(id)s and attempt = %(attempt)s and session_id = %(session)s
    for key share
    on conflict (job_id, name) do update set name = excluded.name
    returning result
),
ended as (
    delete from sereno.signal_waits where job_id = %(id)s and name = %(name)s and exists (select from kept)
)
select result::text from kept;

-- name: arm
-- Second statement of a settlement: these jobs wait for signals from now on. Its snapshot is newer than that of the
-- handler: a job whose signal was sent meanwhile is made ready at once.
with clock as materialized (select sereno.now() as now),
waiting as materialized (
    select waits.job_id, waits.name, item.attempt,
           exists (select from sereno.signals
                   where signals.name = waits.name and coalesce(signals.tenant, '') = coalesce(waits.tenant, '')
                     and sent_at >= waits.since) as is_met
    from unnest(%(ids)s::bigint[], %(attempts)s::integer[], %(names)s::text[]) as item(id, attempt, name)
    join sereno.signal_waits waits on waits.job_id = item.id and waits.name = item.name
),
armed as (
    update sereno.signal_waits waits set attempt = waiting.attempt, is_checked = false
    from waiting where waits.job_id = waiting.job_id and waits.name = waiting.name and not is_met
),
moved as (
    update sereno.jobs set state = 'ready', run_at = (select now from clock), ready_seq = nextval('sereno.ready_seq')
    where id = any(array(select job_id from waiting where is_met)) and state = 'scheduled'
    returning queue
),
notified as (
    select pg_notify('sereno.ready', queue) from (select distinct queue from moved) as filled
    where exists (select from sereno.sessions where idle and queues ? queue)
)
select (select count(*) from moved), (select count(*) from notified);

-- name: check_waits
-- Wake jobs whose wait was committed after the signal. A wait stays unchecked while its job is locked.
with clock as materialized (select sereno.now() as now),
fresh as materialized (
    select job_id, name, tenant, since, attempt from sereno.signal_waits
    where not is_checked order by job_id limit %(most)s for update skip locked
),
met as materialized (
    select job_id, attempt from fresh
    where exists (select from sereno.signals
                  where signals.name = fresh.name and coalesce(signals.tenant, '') = coalesce(fresh.tenant, '')
                    and sent_at >= fresh.since)
),
locked as materialized (
    select id from sereno.jobs
    where id = any(array(select job_id from met)) and state = 'scheduled' and (id, attempt) in (select job_id, met.attempt from met)
    order by id
    for update skip locked
),
moved as (
    update sereno.jobs set state = 'ready', run_at = (select now from clock), ready_seq = nextval('sereno.ready_seq')
    where id = any(array(select id from locked))
    returning queue
),
checked as (
    update sereno.signal_waits waits
    set is_checked = true, attempt = case when waits.job_id in (select id from locked) then null else waits.attempt end
    from fresh
    where waits.job_id = fresh.job_id and waits.name = fresh.name
      and (fresh.job_id in (select id from locked) or not exists (
          select from met join sereno.jobs on jobs.id = met.job_id and jobs.attempt = met.attempt and jobs.state = 'scheduled'
          where met.job_id = fresh.job_id))
    returning 1
),
notified as (
    select pg_notify('sereno.ready', queue) from (select distinct queue from moved) as filled
    where exists (select from sereno.sessions where idle and queues ? queue)
)
select (select count(*) from moved), (select count(*) from fresh) >= %(most)s and exists (select from checked),
       (select count(*) from notified);

-- name: check_signals
-- Wake jobs whose wait was committed before the signal, and that the sender did not see or could not lock. A signal
-- stays unchecked while a job that waits for it is locked, or if more jobs wait than one call wakes.
with clock as materialized (select sereno.now() as now),
fresh as materialized (
    select id, name, tenant, sent_at from sereno.signals
    where not is_checked order by id limit %(most)s for update skip locked
),
waiting as materialized (
    select distinct found.job_id, found.attempt from fresh cross join lateral (
        select waits.job_id, waits.attempt
        from sereno.signal_waits waits
        join sereno.jobs on jobs.id = waits.job_id and jobs.attempt = waits.attempt and jobs.state = 'scheduled'
        where waits.name = fresh.name and coalesce(waits.tenant, '') = coalesce(fresh.tenant, '')
          and waits.attempt is not null and waits.since <= fresh.sent_at
        order by waits.job_id limit %(most)s
    ) as found
),
locked as materialized (
    select id from sereno.jobs
    where id = any(array(select job_id from waiting)) and state = 'scheduled'
      and (id, attempt) in (select job_id, waiting.attempt from waiting)
    order by id
    for update skip locked
),
moved as (
    update sereno.jobs set state = 'ready', run_at = (select now from clock), ready_seq = nextval('sereno.ready_seq')
    where id = any(array(select id from locked))
    returning queue
),
unlocked as materialized (
    select waits.job_id, waits.name from sereno.signal_waits waits
    where waits.job_id = any(array(select id from locked)) and waits.attempt is not null
    for update skip locked
),
disarmed as (
    update sereno.signal_waits waits set attempt = null, is_checked = true
    from unlocked where waits.job_id = unlocked.job_id and waits.name = unlocked.name
),
checked as (
    update sereno.signals set is_checked = true
    where id = any(array(
        select fresh.id from fresh
        where not exists (
            select from sereno.signal_waits waits
            join sereno.jobs on jobs.id = waits.job_id and jobs.attempt = waits.attempt and jobs.state = 'scheduled'
            where waits.name = fresh.name and coalesce(waits.tenant, '') = coalesce(fresh.tenant, '')
              and waits.attempt is not null and waits.since <= fresh.sent_at
              and waits.job_id <> all(array(select id from locked)))))
    returning 1
),
notified as (
    select pg_notify('sereno.ready', queue) from (select distinct queue from moved) as filled
    where exists (select from sereno.sessions where idle and queues ? queue)
)
select (select count(*) from moved),
       ((select count(*) from fresh) >= %(most)s and exists (select from checked)) or (select count(*) from moved) >= %(most)s,
       (select count(*) from notified);

-- name: list
-- The newest signals, of one tenant or of all, with a name or with any.
select id, name, tenant, sereno.shown(value), sent_at
from sereno.signals
where (%(tenant)s::text is null or tenant = %(tenant)s) and (%(name)s::text is null or name = %(name)s)
order by id desc limit %(limit)s;

-- name: waiting
-- The signal that a waiting job waits for.
select waits.name, waits.until
from sereno.signal_waits waits
join sereno.jobs on jobs.id = waits.job_id and jobs.attempt = waits.attempt and jobs.state = 'scheduled'
where waits.job_id = %(id)s
limit 1;

-- name: forget
-- Delete a page of signals that are past their retention.
delete from sereno.signals
where id = any(array(select id from sereno.signals
                     where sent_at < sereno.now() - make_interval(days => %(days)s)
                     order by sent_at limit %(most)s for update skip locked))
returning id;
