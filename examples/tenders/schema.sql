-- The tables of this program. Recipients, deliveries and their outcomes are in sereno's tables.
create schema if not exists tenders;

-- Every code ever ingested, never deleted: an archived tender is not ingested a second time.
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
    -- A receipt says that Apple or Google accepted the push for at least one phone.
    notified boolean not null default false
);

create index if not exists tenders_not_notified on tenders.tenders (code) where not notified;

-- The day up to which the API's lists were read.
create table if not exists tenders.progress (
    one_row boolean primary key default true check (one_row),
    read_until date not null
);
