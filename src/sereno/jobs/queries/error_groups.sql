-- Error groups: failures by kind. Workers add to them. Hours are in UTC.

-- name: add
-- Add the failures of a worker. New groups are added only up to the maximum. In key order, so that two workers cannot
-- deadlock.
with clock as materialized (select sereno.now() as now),
line as materialized (
    select * from jsonb_to_recordset(%(lines)s::text::jsonb) as s(
        fingerprint text, task text, error_type text, message text, frame text, count bigint, job bigint)
),
known as materialized (
    select fingerprint from sereno.error_groups
    where fingerprint = any(array(select line.fingerprint from line))
),
ranked as (
    select line.*, known.fingerprint is not null as is_known,
           row_number() over (partition by known.fingerprint is null order by line.fingerprint) as place
    from line left join known on known.fingerprint = line.fingerprint
)
insert into sereno.error_groups as g (
    fingerprint, task, error_type, message, frame, first_at, last_at, count, last_job_id)
select fingerprint, task, error_type, message, frame, clock.now, clock.now, count, job
from ranked, clock
where is_known or place + (select count(*) from sereno.error_groups) <= %(most)s
order by fingerprint
on conflict (fingerprint) do update
set message = excluded.message, last_at = greatest(g.last_at, excluded.last_at), count = g.count + excluded.count,
    last_job_id = excluded.last_job_id;

-- name: add_hours
-- The same by hour and tenant, for stored groups. Tenants beyond the maximum are counted without a name.
with clock as materialized (select date_trunc('hour', sereno.now(), 'UTC') as hour),
line as materialized (
    select s.* from jsonb_to_recordset(%(lines)s::text::jsonb) as s(fingerprint text, tenant text, count integer)
    where exists (select from sereno.error_groups g where g.fingerprint = s.fingerprint)
),
seen as materialized (
    select fingerprint, tenant from sereno.error_hours
    where fingerprint = any(array(select line.fingerprint from line)) and hour = (select hour from clock)
),
taken as materialized (select fingerprint, count(*) as tenants from seen group by fingerprint),
ranked as (
    select line.*, seen.tenant is not null as is_known, coalesce(taken.tenants, 0) as tenants,
           row_number() over (partition by line.fingerprint, seen.tenant is null order by line.tenant) as place
    from line
    left join seen on seen.fingerprint = line.fingerprint and seen.tenant = line.tenant
    left join taken on taken.fingerprint = line.fingerprint
),
placed as (
    select fingerprint, count, case when is_known or place + tenants <= %(most)s then tenant else '' end as tenant
    from ranked
)
insert into sereno.error_hours as h (fingerprint, hour, tenant, count)
select fingerprint, (select hour from clock), tenant, sum(count)
from placed
group by fingerprint, tenant
order by fingerprint, tenant
on conflict (fingerprint, hour, tenant) do update set count = h.count + excluded.count;

-- name: add_tries
-- Add how many tries the successes of each task took.
insert into sereno.tries as t (hour, task, tries)
select date_trunc('hour', sereno.now(), 'UTC'), task, tries
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(task text, tries integer[])
order by task
on conflict (hour, task) do update set tries = sereno.added(t.tries, excluded.tries);

-- name: forget
-- Delete a page of groups that were not seen for the retention time and are not muted, and of the least recently seen ones
-- beyond the maximum. Their hours are deleted first, in the order of the groups, and a group with the last of its hours; all
-- expired hours are deleted too. Return whether there may be more.
with old as materialized (
    select fingerprint from sereno.error_groups
    where last_at < sereno.now() - make_interval(days => %(days)s)
      and (muted_until is null or muted_until < sereno.now())
    limit %(kinds)s for update skip locked
),
surplus as materialized (
    select fingerprint from sereno.error_groups order by last_at desc, fingerprint
    offset %(left)s limit %(kinds)s for update skip locked
),
ending as materialized (select fingerprint from old union select fingerprint from surplus),
picked as materialized (
    select fingerprint, hour, tenant from sereno.error_hours where fingerprint = any(array(select fingerprint from ending))
    order by fingerprint, hour, tenant limit %(most)s
),
theirs as (
    delete from sereno.error_hours as h using picked
    where h.fingerprint = picked.fingerprint and h.hour = picked.hour and h.tenant = picked.tenant
),
gone as (
    delete from sereno.error_groups
    where fingerprint = any(array(select fingerprint from ending))
      and ((select count(*) from picked) < %(most)s or fingerprint < (select max(fingerprint) from picked))
    returning fingerprint
),
hours as (
    delete from sereno.error_hours
    where ctid = any(array(select ctid from sereno.error_hours where hour < sereno.now() - make_interval(days => %(days)s)
                           order by hour limit %(most)s for update skip locked))
    returning hour
),
tries as (
    delete from sereno.tries
    where ctid = any(array(select ctid from sereno.tries where hour < sereno.now() - make_interval(days => %(days)s)
                           order by hour limit %(most)s for update skip locked))
    returning hour
)
select (select count(*) from gone) >= %(kinds)s or (select count(*) from picked) >= %(most)s or (select count(*) from hours) >= %(most)s
       or (select count(*) from tries) >= %(most)s;

-- name: list
-- Groups seen in a time range, of one task or tenant or of all, with their count in it and the last day by hour. A group
-- requested by its fingerprint is always returned. There are a few thousand at most, so a search reads all of them.
with clock as materialized (select sereno.now() as now),
spans as materialized (
    select fingerprint, sum(count)::bigint as count
    from sereno.error_hours
    where hour >= date_trunc('hour', (select now from clock) - make_interval(secs => %(since)s), 'UTC')
      and (%(tenant)s::text is null or tenant = %(tenant)s)
      and (%(fingerprint)s::text is null or fingerprint = %(fingerprint)s)
    group by fingerprint
),
page as materialized (
    select g.fingerprint, g.task, g.error_type, g.message, g.frame, g.first_at, g.last_at, g.count as total,
           coalesce(spans.count, 0) as count, g.last_job_id, g.muted_until, g.note
    from sereno.error_groups g left join spans on spans.fingerprint = g.fingerprint
    where case when %(fingerprint)s::text is null then spans.count > 0 else g.fingerprint = %(fingerprint)s end
      and (%(task)s::text is null or g.task = %(task)s)
      and (%(muted)s or g.muted_until is null or g.muted_until <= (select now from clock))
-- use: search.terms_begin
               when 'task' then g.task like any(patterns)
               when 'type' then g.error_type like any(patterns)
               when 'message' then sereno.message_matches(g.message, patterns, hides)
               when 'where' then g.frame ilike any(patterns)
               when 'fingerprint' then g.fingerprint like any(patterns)
               when 'note' then g.note ilike any(patterns)
               when 'muted' then case when g.muted_until > (select now from clock) then 'yes' else 'no' end like any(patterns)
               when 'job' then g.last_job_id::text like any(patterns)
               when 'count' then coalesce(spans.count, 0) >= low and coalesce(spans.count, 0) < high
               when 'total' then g.count >= low and g.count < high
               when 'first' then date_part('epoch', g.first_at) >= low and date_part('epoch', g.first_at) < high
               when 'last' then date_part('epoch', g.last_at) >= low and date_part('epoch', g.last_at) < high
               else g.error_type ilike any(patterns) or g.task ilike any(patterns)
                    or sereno.message_matches(g.message, patterns, hides)
                    or g.frame ilike any(patterns) or g.fingerprint ilike any(patterns)
-- use: search.terms_end
    order by case when %(by_count)s then spans.count end desc nulls last, g.last_at desc, g.fingerprint
    offset %(skip)s limit %(limit)s
),
day as materialized (
    select fingerprint, hour, sum(count)::bigint as count
    from sereno.error_hours
    where fingerprint = any(array(select fingerprint from page))
      and hour >= date_trunc('hour', (select now from clock), 'UTC') - interval '23 hours'
      and (%(tenant)s::text is null or tenant = %(tenant)s)
    group by fingerprint, hour
),
hours as materialized (
    select page.fingerprint, array_agg(coalesce(day.count, 0) order by every.hour) as hours
    from clock
    cross join page
    cross join lateral generate_series(date_trunc('hour', clock.now, 'UTC') - interval '23 hours',
                                       date_trunc('hour', clock.now, 'UTC'), interval '1 hour') as every(hour)
    left join day on day.fingerprint = page.fingerprint and day.hour = every.hour
    group by page.fingerprint
)
select row_to_json(line)::text
from (select page.*, hours.hours
      from page join hours on hours.fingerprint = page.fingerprint
      order by case when %(by_count)s then page.count end desc nulls last, page.last_at desc, page.fingerprint) as line;

-- name: hours
-- Every hour of a time range, oldest first.
select row_to_json(line)::text
from (select hour as at,
             coalesce((select sum(count) from sereno.error_hours h
                       where h.fingerprint = %(fingerprint)s and h.hour = every.hour), 0)::bigint as count
      from generate_series(date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC'), sereno.now(),
                           interval '1 hour') as every(hour)
      order by hour) as line;

-- name: tenants
-- The most affected tenants in a time range.
select row_to_json(line)::text
from (select nullif(tenant, '') as tenant, sum(count)::bigint as count
      from sereno.error_hours
      where fingerprint = %(fingerprint)s
        and hour >= date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC')
      group by error_hours.tenant order by sum(count) desc, error_hours.tenant limit %(most)s) as line;

-- name: breadth
-- How many tenants each group affects in a time range, within a bounded number of its newest hours.
select wanted.fingerprint, (select count(distinct tenant) from (
           select tenant from sereno.error_hours h
           where h.fingerprint = wanted.fingerprint
             and h.hour >= date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC')
           order by h.hour desc limit %(bound)s) as newest
       where tenant <> '')
from unnest(%(fingerprints)s::text[]) as wanted(fingerprint);

-- name: tries
-- How many tries the successes of a task took in a time range; null without successes.
select sereno.sum_of(tries)
from sereno.tries
where task = %(task)s and hour >= date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC');

-- name: dead
-- How many dead letters have this failure, up to the bound.
select count(*) from (
    select from sereno.history_dead where fingerprint = %(fingerprint)s limit %(bound)s + 1) as counted;

-- name: sample
-- The newest failure of this group that a job had, as stored.
select row_to_json(line)::text
from (
    (select id as job_id, attempt, finished_at, error_type, error_message, reason, traceback, tenant
     from sereno.history where id = %(job)s and state = 'dead' and fingerprint = %(fingerprint)s)
    union all
    (select job_id, number, finished_at, error_type, error_message, reason, traceback,
            (select jobs.tenant from sereno.jobs where jobs.id = attempts.job_id)
     from sereno.attempts where job_id = %(job)s and fingerprint = %(fingerprint)s)
    order by finished_at desc limit 1
) as line;

-- name: mute
-- Mute a group until a time, or unmute it with null. Without a new note the old one stays.
update sereno.error_groups
set muted_until = %(until)s, note = case when %(with_note)s then %(note)s else note end
where fingerprint = %(fingerprint)s
returning fingerprint;
