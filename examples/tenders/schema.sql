-- The tables of this program. What is sent to whom, and what became of it, is in sereno's own.
create schema if not exists tenders;

-- Every code that was ever found, for ever: a tender that has left for the archive is not found a second time.
create table if not exists tenders.registry (
    code text primary key,
    claimed_at timestamptz not null default now()
);

create table if not exists tenders.tenders (
    code text primary key references tenders.registry,
    title text not null,
    region text,
    buyer text,
    amount bigint,
    closes_at timestamptz,
    found_at timestamptz not null default now(),
    -- Apple or Google took it for at least one phone.
    notified boolean not null default false
);

create index if not exists tenders_not_notified on tenders.tenders (code) where not notified;

-- Up to which day the API's lists were read.
create table if not exists tenders.progress (
    one_row boolean primary key default true check (one_row),
    read_until date not null
);
