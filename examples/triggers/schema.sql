-- A dairy with a few plants: the tables of its stored procedures, and the procedures. Idempotent.

create schema if not exists triggers;

create table if not exists triggers.tanks (
    plant    text not null,
    tank     text not null,
    filling  boolean not null default false,
    primary key (plant, tank)
);

create table if not exists triggers.readings (
    plant    text not null,
    tank     text not null,
    litres   integer not null check (litres >= 0),
    read_at  timestamptz not null default now()
);

create table if not exists triggers.stock (
    plant   text primary key,
    litres  bigint not null,
    as_of   timestamptz not null
);

create table if not exists triggers.closed_days (
    plant   text not null,
    day     date not null,
    litres  bigint not null,
    job     bigint not null,
    primary key (plant, day)
);

create table if not exists triggers.counts (
    job      bigint not null,
    plant    text not null,
    tank     text not null,
    attempt  integer not null,
    primary key (job, tank)
);

create table if not exists triggers.prices (
    month  date primary key,
    cents  numeric not null check (cents > 0)
);

create table if not exists triggers.settlements (
    month  date primary key,
    cents  numeric not null,
    job    bigint not null
);

-- Every few minutes. The instant is the planned one: a late run does not write over a newer one.
create or replace procedure triggers.refresh_stock(plant text, planned_at timestamptz)
language sql as $$
    insert into triggers.stock as s
    select refresh_stock.plant, coalesce(sum(r.litres), 0), coalesce(refresh_stock.planned_at, now())
    from triggers.readings r where r.plant = refresh_stock.plant
    on conflict (plant) do update set litres = excluded.litres, as_of = excluded.as_of where s.as_of <= excluded.as_of
$$;

-- Runs every night for the day that has ended. The primary key makes a second call harmless.
create or replace procedure triggers.close_day(plant text, night date, job bigint)
language plpgsql as $$
begin
    insert into triggers.closed_days
    select close_day.plant, night - 1, coalesce(sum(r.litres), 0), close_day.job
    from triggers.readings r
    where r.plant = close_day.plant and (r.read_at at time zone 'Europe/Madrid')::date = night - 1
    on conflict do nothing;
    raise notice '% %', night - 1, case when found then 'is closed' else 'was closed before' end;
end $$;

-- Long-running: waits for a tank that is being filled. Each count is committed, so an attempt continues where the last one died.
create or replace procedure triggers.recount_tanks(plant text, job bigint, attempt integer)
language plpgsql as $$
declare
    next_tank text;
begin
    for next_tank in select t.tank from triggers.tanks t where t.plant = recount_tanks.plant order by t.tank loop
        while (select t.filling from triggers.tanks t where (t.plant, t.tank) = (recount_tanks.plant, next_tank)) loop
            commit;
            perform pg_sleep(0.1);
        end loop;
        insert into triggers.counts values (recount_tanks.job, recount_tanks.plant, next_tank, recount_tanks.attempt)
        on conflict do nothing;
        commit;
    end loop;
end $$;

-- Runs once a month is over. Fails until the price of that month has been entered.
create or replace procedure triggers.settle_month(month date, job bigint)
language plpgsql as $$
declare
    price numeric := (select p.cents from triggers.prices p where p.month = settle_month.month);
begin
    if price is null then
        raise exception 'there is no price for % yet', to_char(settle_month.month, 'YYYY-MM');
    end if;
    insert into triggers.settlements
    select settle_month.month, price * coalesce(sum(c.litres), 0), settle_month.job
    from triggers.closed_days c where date_trunc('month', c.day) = settle_month.month
    on conflict do nothing;
end $$;

-- Deletes rows. Not on the allow-list yet.
create or replace procedure triggers.purge_readings(before date)
language sql as $$
    delete from triggers.readings where read_at < before
$$;

-- By default, PostgreSQL lets every role execute new routines.
revoke execute on all routines in schema triggers from public;
