create schema if not exists reconciliation;

-- One row for each account. `runs` names its job types; a new one needs no new column.
create table if not exists reconciliation.accounts (
    id text primary key check (id ~ '^[a-z0-9-]{1,60}$'),
    merchant text not null,
    zone text not null default 'America/Sao_Paulo',
    hour text not null default '03:00',
    runs text[] not null default '{reconcile}',
    enabled boolean not null default true
);

-- The newest file of each account and month, and whether its lines have been read.
create table if not exists reconciliation.files (
    id bigint generated always as identity primary key,
    account text not null,
    month text not null,
    path text not null,
    sha256 text not null,
    job_id bigint not null,
    received_at timestamptz not null default now(),
    processed_at timestamptz,
    unique (account, month)
);

create table if not exists reconciliation.entries (
    file_id bigint not null references reconciliation.files on delete cascade,
    line integer not null,
    order_id text not null,
    amount numeric(14, 2) not null,
    primary key (file_id, line)
);

create table if not exists reconciliation.sales (
    account text not null,
    order_id text not null,
    day date not null,
    amount numeric(14, 2) not null check (amount <> 'NaN'),
    primary key (account, order_id)
);

-- Dead letters that were reported; a job that is retried and dies again is reported again.
create table if not exists reconciliation.reported (
    job_id bigint not null,
    attempt integer not null,
    primary key (job_id, attempt)
);
