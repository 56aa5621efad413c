-- Figures by the minute, so that nobody has to count: every worker adds what it has seen end, a few times a minute.

-- `waits`, `runs`: how many attempts waited and ran for how long, by the buckets of sereno.telemetry.metrics, and beyond.
create table sereno.minutes (
    minute     timestamptz not null,
    queue      text not null,
    task       text not null,
    succeeded  integer not null default 0,
    retried    integer not null default 0,
    dead       integer not null default 0,
    cancelled  integer not null default 0,
    other      integer not null default 0,
    waits      integer[] not null,
    runs       integer[] not null,
    run_seconds  double precision not null default 0,
    primary key (minute, queue, task)
) with (fillfactor = 70);

-- The same by hour and tenant: attempts that ended, those that did not succeed, seconds of work.
create table sereno.tenant_hours (
    hour     timestamptz not null,
    tenant   text not null,
    ended    integer not null default 0,
    failed   integer not null default 0,
    seconds  double precision not null default 0,
    primary key (hour, tenant)
) with (fillfactor = 70);

-- Two histograms of the same buckets.
create function sereno.added(integer[], integer[]) returns integer[]
    language sql immutable strict as $$
    select array_agg(coalesce(mine, 0) + coalesce(theirs, 0) order by place)
    from unnest($1, $2) with ordinality as both_of(mine, theirs, place)
    $$;

create aggregate sereno.sum_of(integer[]) (sfunc = sereno.added, stype = integer[]);
