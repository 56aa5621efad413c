-- The application's own tables. The seed's job_runner_lock and job_runner_state are replaced by sereno's tables.
create schema if not exists separate_worker;

create table if not exists separate_worker.organisations (
    id text primary key check (id ~ '^[a-z0-9-]{1,60}$'),
    -- The key itself is shown once and never stored.
    key_hash bytea not null unique
);

create table if not exists separate_worker.leads (
    id bigint generated always as identity primary key,
    organisation text not null references separate_worker.organisations,
    -- The caller's own name for it: sent twice, it is one lead.
    reference text not null,
    email text not null,
    pushed_at timestamptz,
    follow_up_at timestamptz not null default now() + interval '1 day',
    -- The run of the cycle that took its follow-up, and when the person was written to.
    followed_by bigint,
    followed_at timestamptz,
    unique (organisation, reference)
);
create index if not exists leads_to_follow on separate_worker.leads (follow_up_at) where followed_by is null;
create index if not exists leads_followed_by on separate_worker.leads (followed_by) where followed_by is not null;
