create schema if not exists reconciliation;

-- One row for each account. `runs` names its job types; a new one needs no new column. Rows may be written with SQL:
-- schedules follow within a minute. `synchronised_at`: when they last did.
create table if not exists reconciliation.accounts (
    id text primary key check (id ~ '^[a-z0-9-]{1,60}$'),
    merchant text not null check (merchant <> ''),
    zone text not null default 'America/Sao_Paulo',
    hour text not null default '03:00' check (hour ~ '^([01][0-9]|2[0-3]):[0-5][0-9]$'),
    runs text[] not null default array['reconcile'],
    enabled boolean not null default true,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    synchronised_at timestamptz
);

create or replace function reconciliation.set_timestamp() returns trigger language plpgsql as $$
begin
    new.updated_at := clock_timestamp();
    return new;
end $$;

-- Not for `synchronised_at`, which is written after the schedules.
create or replace trigger set_timestamp
before update of merchant, zone, hour, runs, enabled on reconciliation.accounts
for each row when (old.* is distinct from new.*) execute function reconciliation.set_timestamp();

-- The files that runs have received. A run is a job, and its file has the job's id.
create table if not exists reconciliation.files (
    id bigint primary key,
    account text not null,
    merchant text not null,
    competence text not null check (competence ~ '^[0-9]{4}-[0-9]{2}$'),
    path text not null,
    sha256 text not null,
    lines_announced integer,
    orders_announced integer,
    lines integer,
    orders integer,
    received_at timestamptz not null,
    processed_at timestamptz,
    -- When a newer file of the same month was processed.
    replaced_at timestamptz
);
create index if not exists files_month on reconciliation.files (account, competence, received_at);
create index if not exists files_replaced on reconciliation.files (replaced_at) where replaced_at is not null;

-- The lines of the newest processed file of each account and month.
create table if not exists reconciliation.entries (
    file_id bigint not null references reconciliation.files on delete cascade,
    line integer not null,
    order_id text,
    order_day date,
    trigger text not null,
    description text not null,
    amount numeric(14, 2) not null,
    -- Whether it changes what the partner pays out.
    counts boolean not null,
    primary key (file_id, line)
);

create table if not exists reconciliation.sales (
    account text not null,
    order_id text not null,
    day date not null,
    status text not null,
    gross numeric(14, 2) not null check (gross <> 'NaN'),
    -- What the partner owes for this sale.
    balance numeric(14, 2) not null check (balance <> 'NaN'),
    primary key (account, order_id)
);
create index if not exists sales_day on reconciliation.sales (account, day);

-- The days whose sales are known; other days are not compared. `id`: the job that fetched them last.
create table if not exists reconciliation.sales_days (
    account text not null,
    day date not null,
    id bigint not null,
    merchant text not null,
    sales integer not null,
    synchronised_at timestamptz not null,
    primary key (account, day)
);

-- Orders whose entries in the newest file do not add up to the balance of the sale. `since`: when that was first seen.
create table if not exists reconciliation.differences (
    account text not null,
    competence text not null,
    order_id text not null,
    kind text not null check (kind in ('not in the file', 'not in the sales', 'other amount')),
    in_file numeric(14, 2),
    in_sales numeric(14, 2),
    since timestamptz not null,
    primary key (account, competence, order_id)
);

-- Dead letters that were reported; a job that is retried and dies again is reported again.
create table if not exists reconciliation.reported (
    job_id bigint not null,
    attempt integer not null,
    primary key (job_id, attempt)
);
