-- Leader election: one scheduler of many leads, under a lease with a fence.

-- name: lead
-- Acquire or renew the lease, or return its holder. The fence increases with each new holder. A lease that ends later
-- than any valid one was written before the clock was set back: it counts as expired.
with clock as materialized (select sereno.now() as now),
mine as (
    insert into sereno.leases as held (name, holder, since, until)
    select 'scheduler', %(holder)s, now, now + make_interval(secs => %(lease)s) from clock
    on conflict (name) do update
        set holder = excluded.holder, until = excluded.until, wakes_at = null,
            fence = held.fence + (held.holder <> excluded.holder)::integer,
            since = case when held.holder <> excluded.holder then excluded.since else held.since end
        where held.until <= (select now from clock) or held.holder = excluded.holder
           or held.until > (select now from clock) + make_interval(secs => 2 * %(lease)s)
    returning fence, zones
)
select (select fence from mine), (select zones from mine),
       exists (select from sereno.schedules
               where next_run_at <= (select now from clock) - make_interval(secs => %(overdue)s));

-- name: due
-- The leader renews its lease, reports its last tick and its planned wake-up, and reads what there is to do: whether it
-- still leads, seconds until the next schedule is due, and ended runs. From time to time it scans everything, including
-- what cannot be found from a floor: held fires that are free, and whether a schedule waits for a run to end. Fenced.
with clock as materialized (select sereno.now() as now),
upcoming as materialized (
    select extract(epoch from greatest(next_run_at, timestamptz 'epoch') - (select now from clock))::double precision
               as seconds
    from sereno.schedules
    where next_run_at < 'infinity'
      and next_run_at >= case when %(floor)s = 0 then '-infinity'
                              else least(sereno.instant(%(floor)s), (select now from clock)) end
    order by next_run_at limit 1
),
noted as (
    update sereno.leases
    set until = (select now from clock) + make_interval(secs => %(lease)s),
        wakes_at = (select now from clock)
                   + make_interval(secs => greatest(0, least(%(rest)s, (select seconds from upcoming)))),
        ticked_at = coalesce(sereno.instant(%(ticked)s), ticked_at),
        tick_seconds = coalesce(%(seconds)s, tick_seconds), tick_fires = coalesce(%(fires)s, tick_fires)
    where name = 'scheduler' and holder = %(holder)s and fence = %(fence)s
    returning true
)
select exists (select from noted), (select seconds from upcoming),
       exists (select from sereno.schedule_ends where id > %(ended)s),
       %(everything)s::boolean
       and exists (select from sereno.schedules where held_at is not null and held_free and state = 'enabled' and planned),
       %(everything)s::boolean
       and (exists (select from sereno.schedules where state = 'enabled' and next_run_at is null)
            or exists (select from sereno.schedules where held_at is not null and state = 'enabled'));

-- name: note_error
-- Store the leader's last error, for `sereno doctor` and the dashboard.
update sereno.leases set error = %(error)s, error_at = sereno.now()
where name = 'scheduler' and holder = %(holder)s and fence = %(fence)s
returning true;

-- name: resign
-- A leader that stops ends its lease, so that the next one need not wait for it to expire.
with gone as (
    update sereno.leases set until = sereno.now(), wakes_at = null
    where name = 'scheduler' and holder = %(holder)s
    returning true
)
select pg_notify('sereno.schedule', 'lead') from gone;

-- name: set_zones
-- The version of the zone data with which instants are planned from now on.
update sereno.leases set zones = %(zones)s where name = 'scheduler' and fence = %(fence)s returning true;
