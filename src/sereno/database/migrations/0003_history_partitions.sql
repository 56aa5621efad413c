-- History by the day: made ahead of time, dropped whole. Both need a lock that a long look at the history holds up,
-- and everybody who settles would queue behind the wait for it: so they give up within a second; there is another hour.

create function sereno.make_history_partition(day date) returns boolean
    language plpgsql set lock_timeout = '1s' as $$
declare
    name text := 'history_done_' || to_char(day, 'YYYYMMDD');
    from_at timestamptz := day::timestamp at time zone 'UTC';
    to_at timestamptz := (day + 1)::timestamp at time zone 'UTC';
begin
    -- Two workers may get here together.
    perform pg_advisory_xact_lock(hashtext('sereno.history_done'));
    if to_regclass(format('sereno.%I', name)) is not null then
        return false;
    end if;
    execute format('create table sereno.%I (like sereno.history_done including all)', name);
    -- What the default partition took meanwhile moves in first; attaching would be refused otherwise.
    execute format('with moved as (delete from sereno.history_done_default where finished_at >= %L and finished_at < %L returning *) '
                   'insert into sereno.%I select * from moved', from_at, to_at, name);
    execute format('alter table sereno.history_done attach partition sereno.%I for values from (%L) to (%L)',
                   name, from_at, to_at);
    return true;
end $$;

create function sereno.drop_history_partition(name text) returns void
    language plpgsql set lock_timeout = '1s' as $$
begin
    if name !~ '^history_done_[0-9]{8}$' then
        raise exception '% is not a partition of the history', name;
    end if;
    execute format('drop table sereno.%I', name);
end $$;

select sereno.make_history_partition(day::date)
from generate_series(date_trunc('day', sereno.now() at time zone 'UTC'),
                     date_trunc('day', sereno.now() at time zone 'UTC') + interval '7 days', interval '1 day') as day;
