-- The application's own tables. Jobs, their lock and their state are in sereno's tables; views.sql shows the last two.
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
    follow_up_at timestamptz not null,
    -- The run of the cycle that took its follow-up, and when the person was written to.
    followed_by bigint,
    followed_at timestamptz,
    -- No follow-up is sent from then on.
    closed_at timestamptz,
    unique (organisation, reference)
);
create index if not exists leads_to_follow on separate_worker.leads (follow_up_at)
    where followed_by is null and closed_at is null;

create table if not exists separate_worker.integrations (
    name text primary key check (name ~ '^[a-z0-9-]{1,60}$'),
    organisation text not null references separate_worker.organisations,
    -- The newest first. To verify a signature needs the secret itself: a hash is not enough.
    secrets text[] not null
);

-- Messages of webhooks. The primary key is what makes them idempotent.
create table if not exists separate_worker.webhook_messages (
    integration text not null references separate_worker.integrations,
    message_id text not null,
    organisation text not null,
    body jsonb not null,
    received_at timestamptz not null default now(),
    handled_at timestamptz,
    primary key (integration, message_id)
);
create index if not exists webhook_messages_handled on separate_worker.webhook_messages (handled_at);

-- Jobs that no cycle has counted yet: inserted with the job, deleted by the first cycle that finds it ended.
create table if not exists separate_worker.uncounted_jobs (
    job_id bigint primary key
);
